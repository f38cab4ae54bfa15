"""What to train: rules over a profile, the head-to-head that proves them, and the tuner."""
