"""Clients and their data: sources, partitions, shifts, splits, batches."""
