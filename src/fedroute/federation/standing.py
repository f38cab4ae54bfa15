"""What is to be said of a site besides whether it is here: who has not accepted, and who is left out of rounds."""

from collections.abc import Sequence

from fedroute.federation.asking import Sites
from fedroute.quarantine import Quarantined, how_often, streak


class Standing:
    """Of all sites of a hub. sites: with which it asks for agreement now."""

    sites: Sites | None = None

    def __init__(self) -> None:
        self._said = dict[str, str]()

    def words(self, client: str) -> str:
        """ "" where there is nothing to say."""
        if self.sites and client in self.sites.open:
            return "its owner has not accepted yet (`fedroute site manifest`, then `fedroute site accept` there)"
        return self._said.get(client, "")

    def after(self, quarantined: Sequence[Quarantined], round: int) -> None:
        """Takes note of who was left out of the rounds up to this one."""
        said = {}
        for client in {q.client for q in quarantined if q.round == round}:
            n, reason = streak(quarantined, client, round)
            said[client] = f"left out of the last {f'{n} rounds' if n > 1 else 'round'}: {reason}"
        self._said = said

    def ended(self, quarantined: Sequence[Quarantined], rounds: int) -> None:
        """The same of a run that has ended."""
        self._said = how_often(quarantined, rounds)
