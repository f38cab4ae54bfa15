"""advise(): from a profile to a method, by rules that a person can check against the profile's numbers.

The rules were made on the design half of benchmarks/advice and judged on the other half; docs/advice.md has the
table."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedroute.advise import companions
from fedroute.advise.advice import NOTHING_SHARED, Advice, ForClient
from fedroute.advise.clients import left_out, only_exchanged, personal
from fedroute.advise.facts import Facts, facts_of
from fedroute.advise.hindered import hindered
from fedroute.advise.methods import METHODS
from fedroute.advise.said import KIND, LEVEL, NOTHING, Said
from fedroute.profile.finding import listed

FEW_CLASSES = 0.36  # of all classes, that a client has effectively: below, its task is a small one of its own
STRONG = 0.5  # a strength, as the profile calls it
BEYOND = 0.05  # of what features tell of the labels by a client's own means, the share that the others' means miss
EASY = 0.8  # of the labels features tell by one's own means: then a client learns them from its own rows


class Choice(NamedTuple):
    """label, runner_up: of METHODS; why, and what would change it, with the profile's numbers."""

    label: str
    runner_up: str
    why: tuple[Said, ...]
    runner_up_why: Said
    changes: tuple[Said, ...]


def advise(profile: Any, model: Mapping[str, Any], norms: bool) -> Advice:
    """profile: a `Profile`, or what `fedroute profile --json` prints. model: the model that is to be trained, as in a
    config. norms: whether it has normalisation layers: without, nothing that keeps them at home is advised."""
    f = facts_of(profile)
    own = personal(f)
    choice = chosen(f, norms)
    if choice.label == "fedper" and model.get("name") == "linear":
        choice = _all_head(choice)
    schedule, schedule_why = companions.schedule(f)
    weighting, weighting_why = companions.weighting(f)
    share, sampling, sampling_why = companions.sampling(f)
    router, router_why = companions.router(f)
    if not METHODS[choice.label].sends:
        schedule, schedule_why, weighting_why, router, router_why = (
            "constant",
            NOTHING,
            NOTHING,
            False,
            NOTHING_SHARED,
        )
    more = tuple(w for w in (weighting_why, sampling_why, schedule_why) if w)
    out = left_out(f)
    return Advice(
        label=choice.label, runner_up=choice.runner_up, runner_up_why=choice.runner_up_why, model=dict(model),
        weighting=weighting, sampling=sampling, clients_per_round=share, schedule=schedule, router=router,
        router_why=router_why, why=(*hindered(f), *choice.why, *more), leave_out=out, personal=own,
        would_change_mind=(*_mended(f, out), *choice.changes),
    )  # fmt: skip


def _mended(f: Facts, out: tuple[ForClient, ...]) -> tuple[Said, ...]:
    """The advice is for the data as they are: whom to mend, before it is asked again."""
    if not out:
        return ()
    who = listed([c.client for c in out])
    if only_exchanged(f):
        return (
            Said(
                f"{who} mended, or left out: then labels seem to mean the same everywhere, and no head need stay for "
                "that; ask again",
                f"{who.zh}经修正，或不参加：那时标签的含义看来处处相同，头部不必为此留在本地；请再问一次",
            ),
        )
    return (
        Said(
            f"{who} mended, or left out: ask again, for this is said of all clients' data as they are now",
            f"{who.zh}经修正，或不参加：请再问一次，因为这里说的是目前所有客户端的数据",
        ),
    )


def chosen(f: Facts, norms: bool) -> Choice:
    """The first rule that fits."""
    if sum(c.rows > 0 for c in f.clients) < 2:
        return Choice(
            "alone", "fedavg",
            (Said("only one client has rows: there is nobody to learn with",
                  "只有一个客户端有数据：没有人可以一起学习"),),
            Said("the same, with a server", "与此相同，只是多一台服务器"),
            (Said("a second client with rows", "有第二个客户端有数据"),),
        )  # fmt: skip
    rules = (_other_meanings, _few_classes, _own_features, _features_apart, _differ)
    return next((c for rule in rules if (c := rule(f, norms)) is not None), None) or _alike(f)


def _all_head(choice: Choice) -> Choice:
    """The same for a model that is one linear layer: with its head at home nothing is left to learn together."""
    head = Said(
        "the model is one linear layer, all head: where heads stay nothing is left to share",
        "模型只有一个线性层，全是头部：头部留在本地，就没有可共享的部分",
    )
    return choice._replace(
        label="alone", runner_up="apfl", why=(choice.why[0], head),
        runner_up_why=Said("it mixes in of a shared model what helps", "它从共享模型中掺入有益的部分"),
        changes=(*choice.changes, Said("a model with a body, such as mlp: then its head alone stays",
                                       "换用带主体的模型（如 mlp）：那时只有头部留在本地")),
    )  # fmt: skip


def _told(f: Facts, kind: str) -> str:
    return f"（{KIND[kind]}偏斜 {f.strength[kind]:.2f}，{LEVEL[f.verdict[kind]]}）"


def missed(f: Facts) -> float:
    """The share, 0..1, of what features tell of the labels at a client that the others' means miss; 0 where unknown,
    or where a client's own rows tell nothing either."""
    if f.own is None or f.own <= 0 or f.others is None:
        return 0.0
    return min(1.0, max(0.0, 1 - f.others / f.own))


def _other_meanings(f: Facts, norms: bool) -> Choice | None:
    if not f.present("concept"):
        return None
    why = Said(
        f"the same features mean different labels at different clients (concept skew {f.strength['concept']:.2f}, "
        f"{f.verdict['concept']}): one model for all must be wrong at some of them",
        f"相同的特征在不同客户端对应不同的标签{_told(f, 'concept')}：一个共用的模型必然在其中一些客户端出错",
    )
    if norms:
        body = Said(
            "heads and normalisation layers stay at their clients and say there what features mean; the rest is shared",
            "头部和归一化层留在各客户端，在那里说明特征的含义；其余部分共享",
        )
    else:
        body = Said(
            "heads stay at their clients and say there what features mean; the body, which only sees, is shared",
            "头部留在各客户端，在那里说明特征的含义；只负责“看”的主体共享",
        )
    return Choice(
        "fedper_fedbn" if norms else "fedper", "alone", (why, body),
        Said("it shares nothing that could be wrong", "它不共享任何可能出错的东西"),
        (Said("labels made to mean the same at all clients (concept skew none): then a shared model",
              "把标签统一成在所有客户端含义相同（没有含义偏斜）：那时用共享模型"),
         Said("clients with several times the rows: then each alone", "各客户端的数据多出几倍：那时各自训练")),
    )  # fmt: skip


def _few_classes(f: Facts, norms: bool) -> Choice | None:
    if not f.present("label") or f.mix > FEW_CLASSES:
        return None
    each = f"{f.mix * f.classes:.1f}"
    why = Said(
        f"clients have effectively {each} of {f.classes} classes each (label skew "
        f"{f.strength['label']:.2f}, {f.verdict['label']}): each one's task is small and its own, and a model for all "
        "classes is worse at it than its own",
        f"各客户端实际上只有 {f.classes} 个类别中的 {each} 个{_told(f, 'label')}：任务小而各不相同，面向所有类别的模型"
        "在这些任务上不如自己的模型",
    )
    return Choice(
        "apfl", "alone",
        (why, Said("a model of one's own, which takes from the shared one what helps while both learn",
                   "各有自己的模型，在两者学习时从共享模型取其有益之处")),
        Said("where tasks are this small it is hardly beaten, and costs no traffic",
             "任务这么小时它几乎不会落败，而且没有通信量"),
        (Said(f"clients with more than {FEW_CLASSES:.0%} of the classes each: then one model, mixed in by each client",
              f"各客户端有超过 {FEW_CLASSES:.0%} 的类别：那时用一个模型，由各客户端自行掺入"),),
    )  # fmt: skip


def _own_features(f: Facts, norms: bool) -> Choice | None:
    """Features look different at each client, and what they tell there the others' rows do not."""
    if f.strength["feature"] < STRONG or missed(f) < BEYOND:
        return None
    assert f.own is not None
    why = Said(
        f"features differ (feature skew {f.strength['feature']:.2f}, {f.verdict['feature']}), and {missed(f):.0%} of "
        "what they tell of the labels at a client, the others' rows do not tell there",
        f"特征不同{_told(f, 'feature')}，而且特征在某客户端所能说明的标签信息中，有 {missed(f):.0%} 是其他客户端的"
        "数据在那里说明不了的",
    )
    changes = (
        Said(f"features that tell the same everywhere (under {BEYOND:.0%} missed): then one model, mixed in by each "
             "client", f"特征处处说明同样的东西（漏掉的不到 {BEYOND:.0%}）：那时用一个模型，由各客户端自行掺入"),
    )  # fmt: skip
    with_norms = Said("a model with normalisation layers: then these stay", "换用带归一化层的模型：那时这些层留在本地")
    own = f"{f.own:.0%}"
    if norms:
        return Choice(
            "fedper_fedbn", "alone",
            (why, Said("normalisation layers and heads stay and translate; the rest is shared",
                       "归一化层和头部留在本地，负责“翻译”；其余部分共享")),
            Said("it shares nothing that would have to be translated", "它不共享任何需要“翻译”的东西"), changes,
        )  # fmt: skip
    if f.own >= EASY:
        return Choice(
            "apfl", "alone",
            (why, Said(f"a client's own rows tell {own} of the way from chance to certainty: a model of its own "
                       "learns, and takes from the shared one what helps",
                       f"从瞎猜到确定，客户端自己的数据能走完 {own}：自己的模型学得会，并从共享模型取其有益之处")),
            Said("a client's own rows tell nearly all", "客户端自己的数据几乎能说明一切"), (*changes, with_norms),
        )  # fmt: skip
    return Choice(
        "fedper", "apfl",
        (why, Said(f"a client's own rows tell only {own} of the way from chance to certainty: seeing must be learnt "
                   "together, under heads that stay",
                   f"从瞎猜到确定，客户端自己的数据只能走完 {own}：“看”必须一起学，头部留在本地")),
        Said("a model of one's own, mixed with the shared one", "各有自己的模型，与共享模型混合"),
        (*changes, with_norms),
    )  # fmt: skip


def _features_apart(f: Facts, norms: bool) -> Choice | None:
    if not norms or f.strength["feature"] < STRONG:
        return None
    why = Said(
        f"features differ (feature skew {f.strength['feature']:.2f}, {f.verdict['feature']}) and the model has "
        "normalisation layers, which stay at their clients and take the difference off",
        f"特征不同{_told(f, 'feature')}，而模型有归一化层，它们留在各客户端，把差别消掉",
    )
    if f.present("label"):
        label = Said(
            f"labels differ too (label skew {f.strength['label']:.2f}, {f.verdict['label']}), so heads stay as well",
            f"标签也不同{_told(f, 'label')}，因此头部也留在本地",
        )
        return Choice(
            "fedper_fedbn", "fedbn", (why, label), Said("the same with one head for all", "与此相同，但共用一个头部"),
            (Said("labels in the same mix everywhere: then one head for all (fedbn)",
                  "标签构成处处相同：那时共用一个头部（fedbn）"),
             Said("features in the same units and ranges everywhere: then one model, mixed in by each client",
                  "特征的单位和范围处处相同：那时用一个模型，由各客户端自行掺入")),
        )  # fmt: skip
    return Choice(
        "fedbn", "fedper_fedbn",
        (why, Said("labels come in the same mix everywhere, so one head serves all",
                   "标签构成处处相同，因此一个头部足以服务所有客户端")),
        Said("the same with heads that stay", "与此相同，但头部留在本地"),
        (Said("labels in other mixes: then heads stay too", "标签构成不同：那时头部也留在本地"),
         Said("features in the same units and ranges everywhere: then FedAvg",
              "特征的单位和范围处处相同：那时用 FedAvg")),
    )  # fmt: skip


def _differ(f: Facts, norms: bool) -> Choice | None:
    """Something differs, and not so much that the shared model does not help."""
    kinds = [k for k in ("label", "feature", "quantity", "time") if f.present(k)]
    if not kinds:
        return None
    kinds.sort(key=lambda k: -f.strength[k])
    told = ", ".join(f"{k} skew {f.strength[k]:.2f} ({f.verdict[k]})" for k in kinds)
    told_zh = "、".join(f"{KIND[k]}偏斜 {f.strength[k]:.2f}（{LEVEL[f.verdict[k]]}）" for k in kinds)
    why = Said(
        f"clients differ ({told}), and what features mean is the same, so that all rows help all",
        f"客户端之间有差别：{told_zh}；而特征的含义相同，因此所有数据对所有客户端都有帮助",
    )
    how = Said(
        f"a median of {f.rows:.0f} different rows a client: each mixes in as much of its own model as rows held out "
        "say",
        f"每个客户端的不同数据中位数为 {f.rows:.0f} 条：各自按留出的数据决定掺入多少自己的模型",
    )
    changes = [Said("no skew at all: then FedAvg", "完全没有偏斜：那时用 FedAvg")]
    if f.present("label") and f.classes > 2:
        changes.append(
            Said(
                f"under {FEW_CLASSES:.0%} of the classes at each client (now {f.mix:.0%}): then a model each (apfl)",
                f"各客户端的类别不到 {FEW_CLASSES:.0%}（现在是 {f.mix:.0%}）：那时各有一个模型（apfl）",
            )
        )
    if f.present("feature") and not norms:
        changes.append(
            Said(
                "a model with normalisation layers, if features differ strongly: then these stay (fedbn)",
                "如果特征差别强烈，换用带归一化层的模型：那时这些层留在本地（fedbn）",
            )
        )
    runner = "fedper_fedbn" if norms and f.present("feature") else "fedper" if f.present("label") else "fedavg_ft"
    return Choice("interpolation", runner, (why, how), METHODS[runner].good, tuple(changes))


def _alike(f: Facts) -> Choice:
    """Nothing differs. Some clients may be tiny or have one class all the same; where most are tiny they need each
    other all the more, and one model."""
    tiny = sum(c.tiny for c in f.clients)
    own_needed = any(c.one_class for c in f.clients) or 0 < tiny <= len(f.clients) / 2
    why = Said(
        "no skew beyond what random clients of these sizes would show: one model for all sees the most rows",
        "偏斜没有超出同样大小的随机客户端会有的程度：共用一个模型看到的数据最多",
    )
    if own_needed:
        return Choice(
            "interpolation", "fedavg",
            (why, Said("some clients are tiny or have one class, and are fitted at the end",
                       "有些客户端数据很少或只有一个类别，最后再为它们适配")),
            Said("the same without the fitting", "与此相同，但不作适配"),
            (Said("enough rows of all classes at every client: then FedAvg",
                  "每个客户端都有足够的各类数据：那时用 FedAvg"),),
        )  # fmt: skip
    return Choice(
        "fedavg", "interpolation",
        (why, Said("personalising would give that away: nearly IID data get FedAvg",
                   "个性化会丢掉这个好处：近乎独立同分布的数据用 FedAvg")),
        Said("it asks rows held out, and does no harm where they say no", "它以留出的数据为准，数据不支持时也无害"),
        (Said("any skew: `fedroute profile` names it", "出现任何偏斜：`fedroute profile` 会指出"),),
    )  # fmt: skip
