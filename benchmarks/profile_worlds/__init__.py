"""Is the diagnosis right? A hundred draws of each of six worlds in which it is known, and mixtures of them."""
