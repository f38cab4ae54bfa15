"""Who runs: name, program, flags, environment, and what it is compared with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Contender:
    name: str
    module: str
    flags: tuple[str, ...] = ()
    peer: bool = False  # runs in the peers' environment
    cores: int = 1
    length: int = 1  # a turn is that many times the rounds of the others'
    workloads: tuple[str, ...] = ("W1", "W2", "W2-b50")


_TUNED = ("--channels-last", "--fused", "--malloc")
_OURS = "benchmarks.speed.ours"

CONTENDERS = {
    c.name: c
    for c in (
        Contender("bare", "benchmarks.speed.bare_loop"),
        Contender("bare-tuned", "benchmarks.speed.bare_loop", _TUNED, workloads=("W2", "W2-b50")),
        Contender("pfl", "benchmarks.speed.peer_pfl", peer=True),
        Contender("fluke", "benchmarks.speed.peer_fluke", peer=True),
        Contender("fedlab", "benchmarks.speed.peer_fedlab", peer=True),
        Contender("fedroute", _OURS),
        Contender("fedroute-evaluated", _OURS, ("--evaluate",), length=4),
        Contender("fedroute-workers-1", _OURS, ("--engine", "workers", "--workers", "1"), cores=2, workloads=("W2",)),
        Contender("fedroute-workers-2", _OURS, ("--engine", "workers", "--workers", "2"), cores=2, workloads=("W2",)),
    )
}
DEFAULT = ("bare", "bare-tuned", "pfl", "fluke", "fedlab", "fedroute")
