"""A federation between organisations: a hub, sites that keep their rows and private weights, and what connects them."""
