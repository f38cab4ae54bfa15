"""Federated averaging."""

from dataclasses import dataclass

from fedroute.core import Algorithm


@dataclass(frozen=True, kw_only=True)
class FedAvg(Algorithm):
    """McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", algorithm 1:
    w <- w + sum_i p_i (w_i - w), where w_i is w after local SGD at client i.

    Deviation: running variances are pooled by the law of total variance (the paper has no batch norm)."""
