"""Many algorithms, many seeds, equal budgets: a table of runs that goes on where it stopped, and what it shows."""
