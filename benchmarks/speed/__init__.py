"""How many samples a second fedroute trains, beside a bare PyTorch loop and three other libraries.

`python -m benchmarks.speed` runs everything; README.md in this folder says what is measured and why so.
"""
