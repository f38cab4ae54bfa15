"""`python -m benchmarks.speed`."""

from benchmarks.speed.run import main

if __name__ == "__main__":
    raise SystemExit(main())
