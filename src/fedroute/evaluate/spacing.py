"""How often to evaluate."""


def spacing(train_seconds_per_round: float, evaluate_seconds: float, share: float = 0.2) -> int:
    """Rounds from one evaluation to the next such that evaluating adds at most `share` to the time of training,
    rounded up to a friendly number: 1, 2, 5, 10, 20, 50, ...

    The promise to users is 30 %; aiming at 20 % leaves room for timings that drift."""
    needed, power = evaluate_seconds / (share * max(train_seconds_per_round, 1e-6)) * (1 - 1e-9), 1
    while needed > 5 * power:
        power *= 10
    return next(n * power for n in (1, 2, 5) if n * power >= needed)
