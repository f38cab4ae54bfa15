"""Rules do what their formulas say, and nobody is asked who must not be."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedroute.errors import InputError
from fedroute.randomness import generator
from fedroute.router.rules import RULES, decide, in_order, log_posterior, mixture, utility, without
from fedroute.router.scores import Decision, Scores

from .worlds import accuracy, anyhow, differing

PICKING = [r for r in RULES if not r.startswith(("mixture", "top_mixture")) and r not in ("vote", "mean", "global")]


def options(scores: Scores, **more: Any) -> dict[str, Any]:
    """All that any rule needs."""
    clients = len(scores.prior)
    g = generator(1, "options")
    owner = torch.randint(clients, scores.router.shape[:1], generator=g)
    arrival = torch.rand(clients, generator=g, dtype=torch.float64) + 0.1
    return {"owner": owner, "best": 1 % clients, "arrival": arrival, **more}


def equal(a: Decision, b: Decision) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def who(d: Decision) -> list[int]:
    return [int(d.client), int(d.second)]


def three() -> Scores:
    """One query, three clients, two labels, by hand."""
    router = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log() + 7
    heads = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]], dtype=torch.float64).log()
    prior = torch.tensor([0.8, 0.15, 0.05], dtype=torch.float64)
    return Scores(router, prior, heads, torch.tensor([[0.3, 0.7]], dtype=torch.float64).log())


def test_by_hand() -> None:
    s = three()
    assert log_posterior(s).exp()[0].tolist() == pytest.approx([0.5, 0.3, 0.2])
    even = [0.5 / 0.8, 0.3 / 0.15, 0.2 / 0.05]
    d = decide("density", s)
    assert who(d) == [2, 1]
    assert float(d.score) == pytest.approx(even[2] / sum(even))
    assert d.answer[0].tolist() == pytest.approx([0.4, 0.6])
    p = decide("posterior", s)
    assert who(p) == [0, 1]
    assert float(p.score) == pytest.approx(0.5)
    q = decide("arrival", s, arrival=torch.tensor([0.0, 3.0, 1.0]))
    assert who(q) == [1, 2]
    assert float(q.score) == pytest.approx(6 / 10)
    m = 0.5 * 0.9 + 0.3 * 0.2 + 0.2 * 0.4
    assert mixture(s)[0].tolist() == pytest.approx([m, 1 - m])
    assert decide("mixture", s).answer[0].tolist() == pytest.approx([m, 1 - m])
    c = decide("consensus", s)
    assert who(c) == [0, 1]
    assert float(c.score) == pytest.approx(m)
    assert decide("top_mixture", s, top=2).answer[0, 0].item() == pytest.approx((0.5 * 0.9 + 0.3 * 0.2) / 0.8)
    assert decide("mixture_global", s, common_weight=0.25).answer[0, 0].item() == pytest.approx(0.75 * m + 0.25 * 0.3)
    g = decide("consensus_global", s)  # (m + 0.3) / 2 < 1/2: now those who say the second label, the likelier of them
    assert who(g) == [1, 2]
    assert float(g.score) == pytest.approx(1 - (m + 0.3) / 2)
    assert g.answer[0, 0].item() == pytest.approx((0.2 + 0.3) / 2)
    assert decide("vote", s).answer[0].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert decide("mean", s).answer[0, 0].item() == pytest.approx(0.5)
    assert int(decide("confidence", s).client) == 0
    assert decide("global", s).answer[0, 0].item() == pytest.approx(0.3)


def test_two_answers_each_by_a_likely_client_beat_the_likeliest_client() -> None:
    """Consensus is not the likeliest client: two who agree outweigh one."""
    heads = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]]], dtype=torch.float64).log()
    s = Scores(torch.tensor([[0.4, 0.35, 0.25]]).double().log(), torch.full((3,), 1 / 3).double(), heads)
    assert int(decide("posterior", s).client) == 0
    assert int(decide("consensus", s).client) == 1
    assert int(decide("consensus", s).second) == 2


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_posterior_is_bayes_for_every_law(seed: int) -> None:
    s = anyhow(20, 6, 3, seed)
    q = torch.rand(6, generator=generator(seed, "law"), dtype=torch.float64)
    weight = s.router.exp() / s.prior * q
    assert torch.allclose(log_posterior(s, q).exp(), weight / weight.sum(1, keepdim=True), atol=1e-12)


@given(st.integers(0, 10_000), st.integers(2, 9))
@settings(max_examples=40, deadline=None)
def test_of_equal_sizes_density_and_posterior_agree_bit_for_bit(seed: int, clients: int) -> None:
    s = anyhow(50, clients, 3, seed)
    tight = 1e5 + 1e-10 * s.router  # ties and near ties: subtracting anything would round them elsewhere
    for router in (s.router, tight):
        even = s._replace(router=router, prior=torch.full((clients,), 1 / clients, dtype=torch.float64))
        assert equal(decide("density", even), decide("posterior", even))


def test_of_unequal_sizes_they_do_not() -> None:
    assert not equal(decide("density", anyhow()), decide("posterior", anyhow()))


def test_the_rule_that_knows_the_arrivals_names_most_clients_rightly() -> None:
    """Three overlapping normals of sizes 16:3:1. Each of the rules is best where its law holds."""
    world = differing(3, 1, 1)._replace(
        w=torch.tensor([0.8, 0.15, 0.05], dtype=torch.float64),
        mean=torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)[:, None, None],
    )
    for law in (world.w, torch.full((3,), 1 / 3).double(), world.w.flip(0)):
        x, owner, _ = world.draw(20_000, arrival=law)
        s = world.scores(x)
        right = {
            r: float((decide(r, s, arrival=law).client == owner).double().mean())
            for r in ("density", "posterior", "arrival")
        }
        assert right["arrival"] == max(right.values())
        if torch.equal(law, world.w):
            assert right["posterior"] == right["arrival"] > right["density"] + 0.05
        elif bool((law == law[0]).all()):
            assert right["density"] == right["arrival"] > right["posterior"] + 0.05
        else:
            assert right["arrival"] > right["density"] > right["posterior"]


def test_the_mixture_is_the_pooled_bayes_rule_and_beats_every_rule() -> None:
    world = differing(8, 6, 2, shift=0.2)
    x, _, y = world.draw(20_000)
    s = world.scores(x)
    assert torch.allclose(mixture(s).log(), world.pooled(x), atol=1e-9)
    rules = [r for r in RULES if "global" not in r and r not in ("joint", "oracle")]
    found = {r: accuracy(decide(r, s, arrival=world.w, best=1).answer, y) for r in rules}
    pooled = accuracy(world.pooled(x), y)
    assert found["mixture"] == pooled
    noise = 2 * (0.25 / len(x)) ** 0.5
    for rule, share in found.items():
        assert share <= found["mixture"] + noise, rule
        if rule in PICKING:
            assert share <= found["consensus"] + noise, rule
    assert found["posterior"] < found["consensus"] - noise


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_consensus_says_what_the_mixture_says_wherever_a_client_does(seed: int) -> None:
    for s in (anyhow(100, 3, 5, seed), differing(seed=seed).scores(differing(seed=seed).draw(100)[0])):
        m, c = mixture(s).argmax(1), decide("consensus", s).answer.argmax(1)
        some = (s.heads.argmax(2) == m[:, None]).any(1)
        assert torch.equal(m[some], c[some])
        assert bool(some.any())


def test_with_one_and_the_same_head_all_rules_are_right_equally_often() -> None:
    s = anyhow()
    s = s._replace(heads=s.heads[:, :1].expand_as(s.heads), common=s.heads[:, 0], labels=s.heads[:, 0])
    answers = {r: decide(r, s, **options(s)).answer.argmax(1) for r in RULES}
    assert all(torch.equal(a, answers["oracle"]) for a in answers.values())


def test_of_identical_clients_nothing_is_known() -> None:
    """Whatever their sizes: the posterior is the prior, the density ratios are 0, and who is asked is right about whose
    a query is no more often than chance."""
    world = differing(4, 3, 2)
    world = world._replace(pi=world.pi[:1].expand(4, -1), mean=world.mean[:1].expand(4, -1, -1))
    x, owner, _ = world.draw(20_000, arrival=torch.full((4,), 0.25).double())
    s = world.scores(x)
    assert torch.allclose(log_posterior(s).exp(), world.w.expand(20_000, 4), atol=1e-12)
    assert torch.allclose(log_posterior(s, torch.ones(4)).exp(), torch.full((20_000, 4), 0.25).double(), atol=1e-12)
    for rule in ("density", "posterior", "consensus"):
        assert float((decide(rule, s).client == owner).double().mean()) == pytest.approx(0.25, abs=0.02)


def test_disjoint_supports_route_perfectly_and_all_routers_agree() -> None:
    world = differing(shift=60.0)
    x, owner, _ = world.draw(2000)
    s = world.scores(x)
    for rule in ("density", "posterior", "consensus"):
        d = decide(rule, s)
        assert torch.equal(d.answer.argmax(1), decide("mixture", s).answer.argmax(1))
        if rule != "consensus":
            assert torch.equal(d.client, owner)
            assert bool((d.score > 0.999).all())


def duplicated(world: Any, x: Tensor) -> tuple[Scores, Scores]:
    """The exact scores, and those where client 0 is two, of half its size each."""
    twice = type(world)(
        torch.cat([world.w[:1] / 2, world.w[:1] / 2, world.w[1:]]), *(torch.cat([t[:1], t]) for t in world[1:])
    )
    return world.scores(x), twice.scores(x)


def test_a_duplicated_client_moves_neither_density_nor_consensus_nor_mixture() -> None:
    world = differing(shift=0.5)
    x, _, _ = world.draw(5000)
    one, two = duplicated(world, x)
    p = log_posterior(two).exp()
    assert torch.allclose(p[:, 0] + p[:, 1], log_posterior(one).exp()[:, 0], atol=1e-12)
    assert torch.equal(p[:, 0], p[:, 1])
    assert torch.equal((decide("density", two).client - 1).clamp(min=0), decide("density", one).client)
    assert torch.equal(decide("consensus", two).answer.argmax(1), decide("consensus", one).answer.argmax(1))
    assert torch.allclose(decide("mixture", two).answer, decide("mixture", one).answer, atol=1e-12)


def test_the_likeliest_client_is_hurt_by_a_duplicate() -> None:
    """Its mass splits, and a third client wins: this is why the likeliest client is not the rule by default."""
    world = differing(shift=0.5)
    one, two = duplicated(world, world.draw(5000)[0])
    merged = (decide("posterior", two).client - 1).clamp(min=0)
    lost = merged != decide("posterior", one).client
    assert bool(lost.any())
    assert bool((decide("posterior", one).client[lost] == 0).all())


def test_votes_that_tie_go_to_the_first_label() -> None:
    heads = torch.tensor(
        [[[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]], dtype=torch.float64
    ).log()
    s = Scores(torch.zeros(1, 4).double(), torch.full((4,), 0.25).double(), heads)
    d = decide("vote", s)
    assert d.answer[0].tolist() == [0, 0.5, 0.5]
    assert int(d.answer.argmax(1)) == 1
    assert int(d.client) == int(d.second) == -1


def test_a_vote_counts_heads_and_not_how_sure_they_are() -> None:
    heads = torch.tensor([[[0.51, 0.49], [0.51, 0.49], [0.0, 1.0]]], dtype=torch.float64).log()
    s = Scores(torch.zeros(1, 3).double(), torch.full((3,), 1 / 3).double(), heads)
    assert int(decide("vote", s).answer.argmax(1)) == 0
    assert int(decide("mean", s).answer.argmax(1)) == 1
    assert int(decide("confidence", s).client) == 2


@pytest.mark.parametrize("rule", [r for r in RULES if r not in ("oracle", "best_single")])
def test_a_client_without_rows_attracts_nothing_and_is_not_heard(rule: str) -> None:
    """-log 0 is no reason to be chosen, whatever its logits and answers are."""
    s = anyhow()
    gone = 2
    kept = [i for i in range(5) if i != gone]
    prior = s.prior.index_fill(0, torch.tensor([gone]), 0.0)
    prior = prior / prior.sum()
    law = options(s)["arrival"]
    few = Scores(s.router[:, kept], prior[kept], s.heads[:, kept], s.common, s.labels)
    small = decide(rule, few, arrival=law[kept], seed=3)
    for logit in (-torch.inf, 0.0, 1e6):
        empty = s._replace(prior=prior, router=s.router.index_fill(1, torch.tensor([gone]), logit))
        d = decide(rule, empty, arrival=law, seed=3)
        assert not bool((d.client == gone).any())
        assert not bool((d.second == gone).any())
        if rule != "random":  # which draws by place
            assert torch.equal(torch.tensor([*kept, -1])[small.client], d.client)
            assert torch.equal(torch.tensor([*kept, -1])[small.second], d.second)
            assert torch.allclose(d.answer, small.answer, atol=1e-12)
            assert torch.allclose(d.score, small.score, atol=1e-12)


def test_who_is_away_is_as_one_who_never_was() -> None:
    s = without(anyhow(), [0, 3])
    assert float(s.prior.sum()) == pytest.approx(1)
    assert s.prior[[0, 3]].tolist() == [0, 0]
    for rule in ("density", "posterior", "consensus", "confidence", "random"):
        assert {*decide(rule, s).client.tolist()} <= {1, 2, 4}
    with pytest.raises(InputError, match="every client is away"):
        without(anyhow(), range(5))
    with pytest.raises(InputError, match="best_single is client 3, which is away"):
        decide("best_single", s, best=3)


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_a_number_added_to_a_query_changes_nothing_and_clients_have_no_order(seed: int) -> None:
    s = anyhow(30, 6, 3, seed)
    g = generator(seed, "gauge")
    add = 4 * torch.randn(30, 1, generator=g, dtype=torch.float64)
    order = torch.randperm(6, generator=g)
    place = order.argsort()
    given_ = options(s)
    swapped = Scores(s.router[:, order] + add, s.prior[order], s.heads[:, order], s.common, s.labels)
    there = {
        **given_,
        "arrival": given_["arrival"][order],
        "owner": place[given_["owner"]],
        "best": int(place[given_["best"]]),
    }
    for rule in RULES:
        if rule == "random":
            continue
        a, b = decide(rule, s, **given_), decide(rule, swapped, **there)
        if rule in PICKING:
            assert torch.equal(a.client, order[b.client]), rule
        assert torch.allclose(a.answer, b.answer, atol=1e-9), rule


def test_whose_a_query_is_has_no_part_in_any_answer_but_the_oracles() -> None:
    s = anyhow()
    given_ = options(s)
    other = given_ | {"owner": given_["owner"].flip(0)}
    assert not torch.equal(other["owner"], given_["owner"])
    for rule in RULES:
        same = equal(decide(rule, s, **given_), decide(rule, s, **other))
        assert same == (rule != "oracle"), rule


def test_what_is_near_a_query_in_the_batch_has_no_part_in_its_answer() -> None:
    s = anyhow()
    one = Scores(s.router[7:8], s.prior, s.heads[7:8], s.common[7:8], s.labels[7:8])  # type: ignore[index]
    given_ = options(s)
    for rule in RULES:
        if rule == "random":
            continue
        among, alone = decide(rule, s, **given_), decide(rule, one, **(given_ | {"owner": given_["owner"][7:8]}))
        assert all(
            torch.allclose(a[7:8].double(), b.double(), atol=1e-12) for a, b in zip(among, alone, strict=True)
        ), rule


def test_two_evaluations_agree_and_chance_has_a_key() -> None:
    s = anyhow()
    for rule in RULES:
        assert equal(decide(rule, s, **options(s)), decide(rule, s, **options(s))), rule
    assert not torch.equal(decide("random", s, seed=0).client, decide("random", s, seed=1).client)
    many = anyhow(20_000, 4, 2)
    shares = torch.bincount(decide("random", many).client, minlength=4) / 20_000
    assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.02)


@pytest.mark.parametrize("rule", PICKING)
def test_utility_and_order_are_what_the_rule_goes_by(rule: str) -> None:
    s = without(anyhow(), [1]) if rule not in ("best_single", "oracle") else anyhow()
    given_ = options(s)
    d = decide(rule, s, **given_)
    assert torch.equal(utility(rule, s, **given_).argmax(1), d.client)
    order = in_order(rule, s, 5, **given_)
    assert torch.equal(order[:, 0], d.client)
    assert torch.equal(order[:, 1], d.second)
    allowed = 1 if rule in ("best_single", "oracle") else 4
    assert bool((order[:, allowed:] == -1).all())
    assert all(len({*row}) == allowed for row in order[:, :allowed].tolist())


def test_far_from_everybody_there_is_still_an_order() -> None:
    """Probabilities that underflow are told apart by their logarithms."""
    s = anyhow(1, 4, 2)._replace(router=torch.tensor([[0.0, -3000.0, -1000.0, -2000.0]]).double())
    assert in_order("posterior", s, 4).tolist() == [[0, 2, 3, 1]]
    agreeing = s._replace(heads=s.heads[:, :1].expand(-1, 4, -1))
    assert in_order("consensus", agreeing, 4).tolist() == [[0, 2, 3, 1]]


def test_single_clients_single_labels_and_no_query() -> None:
    one = anyhow(3, 1, 4)
    for rule in RULES:
        d = decide(rule, one, **options(one))
        assert set(d.client.tolist()) <= {0, -1}
        assert bool((d.second == -1).all())
        assert not bool(d.answer.isnan().any())
    sure = anyhow(50, 3, 3)
    sure = sure._replace(heads=torch.full((50, 3, 3), -torch.inf).double().index_fill(2, torch.tensor(1), 0.0))
    for rule in RULES:
        d = decide(rule, sure, **options(sure))
        assert not bool(d.answer.isnan().any()), rule
        assert not bool(d.score.isnan().any()), rule
    none = anyhow(0)
    for rule in RULES:
        d = decide(rule, none, **options(none))
        assert d.client.shape == d.second.shape == d.score.shape == (0,)
        assert d.answer.shape == (0, 4)


def test_a_broken_model_is_not_asked_and_the_others_are() -> None:
    s = anyhow()
    heads = s.heads.clone()
    heads[3, 2], heads[4, :4] = torch.nan, torch.nan
    s = s._replace(heads=heads)
    for rule in RULES:
        if rule in ("oracle", "best_single"):
            continue
        d = decide(rule, s, **options(s))
        assert not bool(d.answer.isnan().any()), rule
        assert int(d.client[3]) != 2
        assert int(d.client[4]) in (4, -1)
        assert int(d.second[4]) == -1
    heads[4] = torch.nan
    with pytest.raises(InputError, match="no client's model answers query 4"):
        decide("posterior", s._replace(heads=heads))


def test_a_query_that_no_client_can_explain_is_anybodys() -> None:
    s = anyhow()._replace(router=torch.full((200, 5), -torch.inf).double())
    assert log_posterior(s).exp()[0].tolist() == pytest.approx([0.2] * 5)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"router": torch.zeros(200, 4)}, "do not fit together"),
        ({"prior": -torch.ones(5)}, "must be shares"),
        ({"prior": torch.zeros(5)}, "must be shares"),
        ({"router": torch.full((200, 5), math.nan)}, "query 0 has no finite score for client 0"),
        ({"router": torch.full((200, 5), math.inf)}, "query 0 has no finite score"),
    ],
)
def test_scores_that_cannot_be(change: dict[str, Tensor], match: str) -> None:
    with pytest.raises(InputError, match=match):
        decide("posterior", anyhow()._replace(**change))


@pytest.mark.parametrize(
    ("rule", "given_", "match"),
    [
        ("concensus", {}, "did you mean consensus"),
        ("arrival", {}, "needs `arrival`"),
        ("oracle", {}, "needs `owner`"),
        ("best_single", {}, "needs `best`"),
        ("mixture_global", {}, "needs a global model"),
        ("joint", {}, "needs a router of"),
        ("posterior", {"top": 0}, "router.top"),
        ("posterior", {"common_weight": 1.5}, "router.common_weight"),
        ("arrival", {"arrival": torch.ones(3)}, "give one for each"),
        ("consensus", {"arrival": torch.tensor([1.0, -1, 0, 0, 0])}, "router.arrival"),
        ("arrival", {"arrival": torch.zeros(5)}, "router.arrival"),
        ("best_single", {"best": 5}, "away, gone or unknown"),
        ("oracle", {"owner": torch.zeros(3, dtype=torch.int64)}, "give one each"),
    ],
)
def test_what_is_asked_wrongly(rule: str, given_: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        decide(rule, anyhow()._replace(common=None, labels=None), **given_)


def test_utility_of_a_rule_that_asks_nobody_in_particular() -> None:
    with pytest.raises(InputError, match="asks no client in particular"):
        utility("mixture", anyhow())
    common = anyhow()._replace(common=torch.full((200, 4), math.nan).double())
    with pytest.raises(InputError, match="global model answers NaN"):
        decide("global", common)
