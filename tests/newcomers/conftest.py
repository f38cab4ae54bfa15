"""The command line, called in this process."""

from tests.cli.conftest import fedroute

__all__ = ["fedroute"]
