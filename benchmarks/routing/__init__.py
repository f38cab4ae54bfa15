"""What routing is worth: one training of each method, then every router and rule on it."""
