"""What is known of LG-FedAvg."""

from fedroute.certificates.claim import Claim, Make
from fedroute.certificates.fedper import own_answers
from fedroute.certificates.presets import with_private
from fedroute.certificates.rig import classes, network, train
from fedroute.config import Training


def head_alone(make: Make) -> tuple[float, float]:
    """Bytes that a client sends in a round: a head of 3 x 7 weights and 3 biases in float64."""
    _, state = train(make(), classes([9]), network(), Training(rounds=1, batch_size=8))
    return float(state.up_bytes), 8.0 * (3 * 7 + 3)


CLAIMS = [
    Claim(
        "the rounds are FedAvg's with body and norms private, bit for bit, with batch norm, momentum and weight decay: "
        "largest difference of any state",
        with_private("body", "norm"),
        0.0,
    ),
    Claim("the head is all that a client sends: bytes", head_alone, 0.0),
    Claim(
        "two clients whose features are turned about: each one's model gets all of its rows right, which no shared "
        "body can under one head",
        lambda make: own_answers(make, inputs=True),
        0.0,
    ),
]
