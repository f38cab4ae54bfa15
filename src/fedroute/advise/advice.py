"""An advice: the method and what goes with it, why, what it costs, and what would change it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedroute.advise.methods import METHODS, Method
from fedroute.advise.said import Said

if TYPE_CHECKING:
    from fedroute.advise.proof import Proof


NOTHING_SHARED = Said("no router: nothing is shared", "不需要路由器：没有共享任何东西")


@dataclass(frozen=True, kw_only=True)
class ForClient:
    """What is said of one client: to mend its data first, or how to treat it within the shared training; why: the
    evidence, in the profile's numbers."""

    client: str
    do: str
    why: Said


@dataclass(frozen=True, kw_only=True)
class Advice:
    """label, runner_up: of METHODS. model: as in a config. weighting, sampling, schedule, clients_per_round: of the
    `training:` part. router: whether a router is worth its cost. why: reasons, the strongest first, each with its
    numbers. would_change_mind: what else the data would have to be. leave_out: clients whose data must be mended
    first, or do not take part; personal: clients that need a model of their own whatever the rest gets.
    proof: of the head-to-head, where there was one. profile: the JSON object of the one it rests on, where it was made
    from a federation. Every sentence is a `Said`: English, and its `zh`."""

    label: str
    runner_up: str
    runner_up_why: Said
    model: Mapping[str, Any]
    weighting: Mapping[str, Any]
    sampling: str
    clients_per_round: float
    schedule: str
    router: bool
    router_why: Said
    why: tuple[Said, ...]
    would_change_mind: tuple[Said, ...]
    leave_out: tuple[ForClient, ...] = ()
    personal: tuple[ForClient, ...] = ()
    proof: "Proof | None" = field(default=None, repr=False)
    profile: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def method(self) -> Method:
        return METHODS[self.label]

    @property
    def algorithm(self) -> str:
        return self.method.name

    @property
    def private(self) -> tuple[str, ...]:
        """Roles of the weights that never leave their client."""
        return self.method.private

    def proven(self, proof: "Proof") -> "Advice":
        """The advice after its head-to-head: the same, or the method that overturned it, with the reason in front."""
        if proof.algorithm == self.label:
            return replace(self, proof=proof, why=(*self.why, proof.words))
        alone = not METHODS[proof.algorithm].sends
        before = Said(
            f"before the proof {self.label} was advised: {self.why[0]}",
            f"验证之前建议的是 {self.label}：{self.why[0].zh}",
        )
        more = Said("more rounds, seeds or validation rows in the proof", "验证时用更多的轮次、种子或验证数据")
        return replace(
            self, label=proof.algorithm, runner_up=self.label, proof=proof,
            why=(proof.words, before),
            runner_up_why=Said("it was the advice before the proof", "这是验证之前的建议"),
            would_change_mind=(more, *self.would_change_mind),
            router=self.router and not alone, router_why=NOTHING_SHARED if alone else self.router_why,
            schedule="constant" if alone else self.schedule,
        )  # fmt: skip

    def config(self) -> dict[str, Any]:
        """The parts `algorithm`, `model` and `training` of a config that follows the advice."""
        training: dict[str, Any] = {"sampling": self.sampling, "schedule": self.schedule, **self.method.training}
        if self.clients_per_round < 1:
            training["clients_per_round"] = self.clients_per_round
        if self.method.sends:
            training["weighting"] = dict(self.weighting)
        return {"algorithm": dict(self.method.config), "model": dict(self.model), "training": training}

    @property
    def cost(self) -> dict[str, Any]:
        """Beside FedAvg with the same rounds: gradients for each batch, passes over a client's rows at the end, whether
        anything leaves; in words."""
        m = self.method
        words, zh = "the computing of FedAvg", "计算量与 FedAvg 相同"
        if m.gradients > 1:
            words, zh = f"{m.gradients} times {words}", f"计算量是 FedAvg 的 {m.gradients} 倍"
        if m.passes:
            words += f", and {m.passes} passes over each client's rows at the end"
            zh += f"，最后在各客户端的数据上再过 {m.passes} 遍"
        leaves = {"norm": ("its normalisation layers", "归一化层"), "head": ("its head", "头部")}
        kept = [leaves[r] for r in m.private if r in leaves]
        traffic, traffic_zh = "the traffic of FedAvg", "通信量与 FedAvg 相同"
        if not m.sends:
            traffic, traffic_zh = "nothing leaves a client", "没有任何东西离开客户端"
        elif kept:
            traffic += f" less {' and '.join(en for en, _ in kept)}"
            traffic_zh += f"，但不含{'和'.join(z for _, z in kept)}"
        said = Said(f"{words}; {traffic}", f"{zh}；{traffic_zh}")
        return {"gradients": m.gradients, "passes": m.passes, "sends": m.sends, "words": said}

    def row(self) -> dict[str, Any]:
        """The JSON object of `fedroute advise --json`."""
        config = self.config()
        return {
            "schema": 1, "algorithm": self.algorithm, "label": self.label, "what": self.method.good,
            "private": list(self.private), "model": dict(self.model), "weighting": dict(self.weighting),
            "sampling": self.sampling, "clients_per_round": self.clients_per_round, "schedule": self.schedule,
            "router": self.router, "router_why": self.router_why, "why": list(self.why), "cost": self.cost,
            "runner_up": METHODS[self.runner_up].name, "runner_up_label": self.runner_up,
            "runner_up_why": self.runner_up_why, "runner_up_config": dict(METHODS[self.runner_up].config),
            "would_change_mind": list(self.would_change_mind),
            "leave_out": [vars(c) for c in self.leave_out], "personal": [vars(c) for c in self.personal],
            "config": config, "proof": self.proof.row() if self.proof else None,
        }  # fmt: skip
