"""How fast the gateway is, beside what it cannot be faster than."""
