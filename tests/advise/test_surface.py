"""`fedroute.advise` is a function of the library as well as the package that holds it."""

import fedroute
from fedroute.advise.job import advise_federation
from fedroute.data.load import load_federation


def test_the_package_can_be_called() -> None:
    federation = load_federation("bundled:digits")
    assert fedroute.advise(federation).row() == advise_federation(federation).row()
