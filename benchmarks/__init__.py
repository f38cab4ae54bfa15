"""Measurements of fedroute that are too long for the tests."""
