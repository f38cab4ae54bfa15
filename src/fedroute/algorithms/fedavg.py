"""Local SGD and the mean of the clients' weights: the default of every hook."""

from dataclasses import dataclass

from fedroute.core import Algorithm


@dataclass(frozen=True, kw_only=True)
class FedAvg(Algorithm):
    """McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", algorithm 1:
    w <- w + sum_i p_i (w_i - w), where w_i is w after local SGD at client i and p_i its share of the training rows.

    Deviations: p_i is a share among those who answered. Running statistics of batch norm travel too, which the paper
    does not have: means and counts are averaged, variances pooled by the law of total variance."""
