"""Evaluation: what each client gained. Nothing here chooses anything; the test part is only measured."""
