"""Engines: where the clients' rounds are computed. All of them compute the same."""
