"""What is known of FedProx with fine-tuning."""

from fedroute.algorithms.fedprox import FedProx
from fedroute.certificates.claim import Claim
from fedroute.certificates.presets import same_rounds, tuned_by_sgd

CLAIMS = [
    Claim(
        "the rounds are FedProx's, bit for bit, whatever is tuned in between: largest difference of the server's state",
        same_rounds(FedProx(mu=2.0), mu=2.0, adapt_epochs=2),
        0.0,
    ),
    Claim(
        "fine-tuning is SGD in PyTorch from the global weights, without the spring: largest difference, mu 2",
        tuned_by_sgd(mu=2.0),
        1e-12,
    ),
]
