"""What holds for all tests: none of them fails by chance."""

import random

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

# the same examples in every run, also where it was interrupted or failed before, and no limit of time for any of them:
# a machine that is busy with something else is no fault; `--hypothesis-profile=default` draws new ones
settings.register_profile(
    "fedroute", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fedroute")


def _draws_begin(seed: int) -> None:
    """What is drawn from now on, by whoever names no generator, is the same in every run, whatever ran before."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _draws_begin(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    _draws_begin(1)
