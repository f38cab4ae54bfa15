"""The command line, as the tests of the commands call it."""

from tests.cli.conftest import fedroute

__all__ = ["fedroute"]
