"""Which clients of a federation never train and come when the others have ended."""

from collections.abc import Sequence

from torch import Tensor

from fedroute.data.spec import nearest
from fedroute.errors import InputError
from fedroute.randomness import seed_of
from fedroute.words import count


def choose_newcomers(
    who: Sequence[str] | float, clients: Sequence[str], sizes: Tensor, seed: int, name: str = "federation"
) -> tuple[int, ...]:
    """Their numbers, ascending. who: names, or the share of all clients (rounded, at least one, and one with rows is
    left to train). sizes: (N,) training rows. A share is drawn by seed and client name: where clients are added, the
    others keep their places in the draw.

    Raises InputError for a name that no client has (with the nearest), a share outside 0 to 1, or where no client with
    training rows would be left to train."""
    if isinstance(who, int | float):
        if not 0 < who < 1:
            raise InputError(f"federation.newcomers: {who} is no share: give one between 0 and 1, or names of clients")
        present = [i for i, n in enumerate(sizes.tolist()) if n]
        drawn = sorted(present, key=lambda i: seed_of(seed, "newcomer", clients[i]))
        chosen = drawn[: min(max(1, round(who * len(clients))), len(present) - 1)]
    else:
        for c in who:
            if c not in clients:
                raise InputError(f"federation.newcomers: {name} has no client {c!r}{nearest(c, clients)}")
        chosen = [clients.index(c) for c in dict.fromkeys(who)]
    if not any(n and i not in chosen for i, n in enumerate(sizes.tolist())):
        raise InputError(
            f"federation.newcomers: nobody is left to train: of the {count(len(clients), 'client')} of {name} leave "
            "one with training rows out of the newcomers"
        )
    return tuple(sorted(chosen))
