"""A thousand clients that each keep a private copy of the model: memory and open files stay flat over 200 rounds."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

CODE = """
    import json, os, resource, sys
    from multiprocessing import active_children

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    import torch
    from torch import nn

    from fedroute.algorithms.scaffold import Scaffold
    from fedroute.config import Training
    from fedroute.core import Task
    from fedroute.data.federation import Federation
    from fedroute.engines.sequential import Sequential
    from fedroute.engines.workers import Workers
    from fedroute.rounds import prepare, run_round, start, work_of_round

    torch.set_num_threads(1)
    workers, clients, width, chosen, rounds = map(int, sys.argv[1:])
    rows = 4 * clients
    index = torch.arange(rows).split(4)
    none = tuple(i[:0] for i in index)
    federation = Federation(
        name="crowd", x=torch.randn(rows, 20), y=torch.randint(0, 10, (rows,)),
        clients=tuple(f"c{i:05}" for i in range(clients)), train=index, validation=none, test=none,
    )
    training = Training(rounds=rounds, clients_per_round=chosen, batch_size=4, lr=0.01)
    model = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, 10))
    algorithm = prepare(Scaffold(), Task(model), training)
    state = start(algorithm, federation)
    w = algorithm.task.init()
    own = {k: torch.full_like(v, 1e-3) for k, v in w.items()}  # not zeros, which take no memory until they are written
    state.privates = {i: {"w": {}, "c": {k: v.clone() for k, v in own.items()}} for i in range(clients)}

    def processes():
        return ["self", *(p.pid for p in active_children())]

    def used():
        pages = sum(int(open(f"/proc/{pid}/statm").read().split()[1]) for pid in processes())
        return pages * os.sysconf("SC_PAGE_SIZE"), [len(os.listdir(f"/proc/{pid}/fd")) for pid in processes()]

    engine = Workers(algorithm, federation, workers) if workers else Sequential(algorithm, federation)
    marks = {}
    for r in range(rounds):
        job = work_of_round(algorithm, federation, training, 0, r)
        state = run_round(algorithm, engine, federation, training, state, job)
        if r + 1 in (20, rounds // 2, rounds):
            marks[r + 1] = used()
    engine.close()
    trained = sum(bool((p["c"]["0.bias"] != own["0.bias"]).any()) for p in state.privates.values())
    up = state.up_bytes / (8 * sum(v.numel() for v in w.values()))  # updates of weights and control variates
    print(json.dumps({"marks": marks, "trained": trained, "answers": up, "quarantined": len(state.quarantined),
                      "left": len(active_children())}))
"""


def crowd(workers: int, clients: int, width: int, chosen: int, rounds: int) -> dict[str, object]:
    arguments = [str(a) for a in (workers, clients, width, chosen, rounds)]
    command = [sys.executable, "-c", textwrap.dedent(CODE), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("workers", [0, 2], ids=["sequential", "two workers"])
def test_memory_and_open_files_stay_flat(workers: int) -> None:
    """1,000 copies of 62 kB; answers that are never let go would add 250 MB."""
    clients, width, chosen, rounds = 1000, 500, 10, 200
    got = crowd(workers, clients, width, chosen, rounds)
    marks = got["marks"]
    assert isinstance(marks, dict)
    (early, files), (late, files_late) = marks["20"], marks[str(rounds)]
    assert late <= 1.1 * early, f"{early / 2**20:.0f} MB after 20 rounds, {late / 2**20:.0f} MB after {rounds}"
    assert files_late == files
    assert max(files) < 64
    assert (got["answers"], got["quarantined"], got["left"]) == (chosen * rounds, 0, 0)
    assert isinstance(got["trained"], int)
    assert got["trained"] > 0.8 * clients  # 866 are expected to have been drawn
