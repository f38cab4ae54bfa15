"""Published settings run again: our number beside the published one. `python -m benchmarks.replications --help`."""
