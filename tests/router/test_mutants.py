"""Known wrong versions of rules, temperatures, limits and thresholds: each is caught by the test it names."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from fedroute.router import arrival, capacity
from fedroute.router.asked import Asked
from fedroute.router.scores import Scores

from . import test_abstain, test_answers, test_arrival, test_calibrate, test_capacity, test_measure, test_rules


class Mutant(NamedTuple):
    what: str
    where: str  # what is replaced
    wrong: Any
    caught_by: Callable[[], None]


def each(test: Any, *more: Any) -> None:
    """A property at a few seeds, without the search for the smallest of them."""
    for seed in range(10):
        test.hypothesis.inner_test(seed, *more)


def prior_added(self: Asked, law: Tensor | None) -> Tensor:
    shift = 0.0 if law is None else law.log() + self.scores.prior.log()
    return (self.scores.router + shift).masked_fill(~self.usable, -torch.inf).log_softmax(1)


def prior_always_subtracted(self: Asked, law: Tensor | None) -> Tensor:
    shift = (torch.ones_like(self.scores.prior) if law is None else law).log() - self.scores.prior.log()
    return (self.scores.router + shift).masked_fill(~self.usable, -torch.inf).log_softmax(1)


def law_that_rounds(self: Asked, law: Tensor | None) -> Tensor:
    """Right but for the last bits: what is subtracted from equal clients moves ties."""
    shift = 0.0 if law is None else law.log() - self.scores.prior.log()
    return (self.scores.router + shift).masked_fill(~self.usable, -torch.inf).log_softmax(1)


def empty_client_attracts(self: Asked, law: Tensor | None) -> Tensor:
    """-log 0 = +inf."""
    shift = 0.0 if law is None else -self.scores.prior.log()
    return (self.scores.router + shift).nan_to_num(posinf=1e9, neginf=-1e9).log_softmax(1)


def whoever_is_likeliest(self: Asked, m: Tensor) -> tuple[Tensor, Tensor]:
    return self.allowed(self.log_p.exp()), self.log_p


def votes_by_sum(self: Asked) -> Tensor:
    return self.mean()


def broken_models_keep_their_weight(self: Asked) -> Tensor:
    weight = self.scores.router.masked_fill(self.scores.prior <= 0, -torch.inf).softmax(1)
    return torch.einsum("bn,bnk->bk", weight, self.scores.heads.exp())


def the_few_keep_what_they_had(self: Asked) -> Tensor:
    kept, who = self.log_p.topk(min(self.top, self.log_p.shape[1]), 1)
    return torch.einsum(
        "bn,bnk->bk", kept.exp(), self.probabilities.gather(1, who[..., None].expand(-1, -1, self._labels))
    )


def the_owner_leaks(self: Asked) -> tuple[Tensor, Tensor]:
    worth = self.allowed(self.probabilities.amax(2))
    if self.owner is not None:
        worth = worth.scatter(1, self.owner[:, None], 1.0)
    return worth, torch.zeros_like(worth)


def prior_divided_too(scores: Scores, temperature: float) -> Tensor:
    return scores.router / temperature


def prior_forgotten(router: Tensor, prior: Tensor, **options: Any) -> Any:
    """Expectation maximisation that takes the prior in twice."""
    return estimate(router + prior.log(), prior, **options)


def first_come(u: Any, cap: Any, step: float) -> Any:
    """Who asks first keeps the place."""
    client, taken = np.full(len(u), -1), np.zeros(u.shape[1], dtype=np.int64)
    for b, row in enumerate(u):
        worth = np.where(taken < cap, row, -np.inf)
        client[b] = worth.argmax()
        taken[client[b]] += 1
    return client, np.zeros(u.shape[1])


def one_over(self: capacity.Capacity, queries: int) -> Tensor:
    return (self.share * queries).long() + 1


def plain_quantile(n: int, alpha: float, confidence: float = 0.95) -> int:
    return max(1, int(np.ceil((1 - alpha) * n)))


def hits_with_nan(answer: Tensor, y: Tensor) -> Any:
    return (answer.argmax(1) == y).numpy()


def absent_clients_count_zero(hit: Any, owner: Tensor, clients: int) -> Any:
    rows = np.bincount(owner.numpy(), minlength=clients)
    return np.bincount(owner.numpy(), weights=hit, minlength=clients) / np.maximum(rows, 1)


estimate = arrival.estimate
MUTANTS = [
    Mutant("the prior added instead of subtracted", "asked.Asked.log_posterior", prior_added, test_rules.test_by_hand),
    Mutant("the prior added, for any law", "asked.Asked.log_posterior", prior_added,
           lambda: each(test_rules.test_posterior_is_bayes_for_every_law)),
    Mutant("the prior subtracted whatever the law", "asked.Asked.log_posterior", prior_always_subtracted,
           test_rules.test_the_mixture_is_the_pooled_bayes_rule_and_beats_every_rule),
    Mutant("a law that rounds", "asked.Asked.log_posterior", law_that_rounds,
           lambda: each(test_rules.test_of_equal_sizes_density_and_posterior_agree_bit_for_bit, 5)),
    Mutant("an empty client is chosen", "asked.Asked.log_posterior", empty_client_attracts,
           lambda: test_rules.test_a_client_without_rows_attracts_nothing_and_is_not_heard("density")),
    Mutant("consensus asks the likeliest", "asked.Asked.consensus", whoever_is_likeliest,
           test_rules.test_two_answers_each_by_a_likely_client_beat_the_likeliest_client),
    Mutant("consensus is not the mixture's", "asked.Asked.consensus", whoever_is_likeliest,
           lambda: each(test_rules.test_consensus_says_what_the_mixture_says_wherever_a_client_does)),
    Mutant("a vote by sum", "asked.Asked.votes", votes_by_sum,
           test_rules.test_a_vote_counts_heads_and_not_how_sure_they_are),
    Mutant("ties to anybody", "asked.Asked.votes", votes_by_sum, test_rules.test_votes_that_tie_go_to_the_first_label),
    Mutant("NaN spreads", "asked.Asked.mixed", property(broken_models_keep_their_weight),
           test_rules.test_a_broken_model_is_not_asked_and_the_others_are),
    Mutant("top mixture does not sum to 1", "asked.Asked.mixed_of_top", property(the_few_keep_what_they_had),
           test_rules.test_by_hand),
    Mutant("the owner leaks", "asked.Asked.confidence", the_owner_leaks,
           test_rules.test_whose_a_query_is_has_no_part_in_any_answer_but_the_oracles),
    Mutant("temperature below the prior", "calibrate.cooled_router", prior_divided_too,
           lambda: each(test_calibrate.test_density_asks_the_same_clients_at_every_temperature, 8.0)),
    Mutant("temperature below the prior, silent queries", "calibrate.cooled_router", prior_divided_too,
           test_calibrate.test_temperature_stands_below_the_ratio_and_not_below_the_prior),
    Mutant("EM that takes the prior twice", "arrival.estimate", prior_forgotten,
           test_arrival.test_clients_that_cannot_be_told_apart_keep_their_proportion),
    Mutant("first come, first served", "capacity._auction", first_come,
           lambda: each(test_capacity.test_limits_hold_and_the_total_is_the_best_there_is, 3, 30)),
    Mutant("one too many", "capacity.Capacity.limits", one_over, test_capacity.test_limits_that_cannot_be),
    Mutant("a threshold without a margin", "abstain.tolerance", plain_quantile,
           lambda: test_abstain.test_the_threshold_keeps_its_promise(500, 0.05)),
    Mutant("scales of nobody", "typical.Typical.scaled", lambda self, z, owner, quantile=0.95: self,
           test_abstain.test_each_client_turns_down_alike_many_of_its_own),
    Mutant("NaN is right", "measure.correct", hits_with_nan, test_measure.test_answers_that_are_nan_are_never_right),
    Mutant("absent clients count as failures", "measure.per_client", absent_clients_count_zero,
           test_measure.test_a_client_without_queries_has_no_part_in_the_macro_mean),
    Mutant("what comes after a head is cut off", "answers.Answering._ends_with_head", lambda self, x: True,
           test_answers.test_a_model_that_goes_on_after_its_head_is_not_cut_short),
]  # fmt: skip
TESTS = (test_abstain, test_answers, test_arrival, test_calibrate, test_capacity, test_measure, test_rules)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.what)
def test_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.caught_by()
    monkeypatch.setattr(f"fedroute.router.{mutant.where}", mutant.wrong)
    name = mutant.where.rpartition(".")[2]
    for module in TESTS:  # which have imported functions by name
        if mutant.where.count(".") == 1 and hasattr(module, name):
            monkeypatch.setattr(module, name, mutant.wrong)
    with pytest.raises(AssertionError):
        mutant.caught_by()
