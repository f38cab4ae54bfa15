"""What a router says of queries: client, answer, how sure, why, and who is next in line, or that nobody fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from fedroute.router.scores import Decision


@dataclass(frozen=True, eq=False)
class Routed:
    """Of B queries. decision: what the rule made of them; posterior: (B, N), P(client | query); abstained: (B,) bool,
    unlike any client's rows, so that no answer should be relied on; because: what speaks for the likeliest client of
    each query, in words, "" for nothing; unseen: the columns in which it has a word that no client has, likewise; both
    [] where that was not looked for."""

    clients: tuple[str, ...]
    labels: tuple[str, ...]
    rule: str
    decision: Decision
    posterior: Tensor
    abstained: Tensor
    because: Sequence[str] = ()
    unseen: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.decision.client)

    def rows(self) -> list[dict[str, Any]]:
        """A line for each query: {client, answer, score, reason, runner_up, abstained, probabilities: {label: p},
        posterior: {client: p} of the three likeliest}.

        client, answer and score are None where the router abstains, client also where the rule asks nobody in
        particular; runner_up then is the likeliest client."""
        share, who = self.posterior.topk(min(3, len(self.clients)), 1)
        each = (*self.decision, self.decision.answer.argmax(1), self.abstained, share, who)
        return [self._row(i, *row) for i, row in enumerate(zip(*(v.tolist() for v in each), strict=True))]

    def _row(
        self, i: int, client: int, p: list[float], score: float, second: int, best: int, abstained: bool,
        share: list[float], who: list[int],
    ) -> dict[str, Any]:  # fmt: skip
        asked = self.clients[client] if client >= 0 else None
        nearest = self.clients[who[0]]
        following = self.clients[second] if second >= 0 else nearest if asked is None else None
        return {
            "client": None if abstained else asked,
            "answer": None if abstained else self.labels[best],
            "score": None if abstained else round(score, 4),
            "reason": self.reason(i, self.because[i] if self.because else ""),
            "runner_up": (asked or nearest) if abstained else following,
            "abstained": abstained,
            "probabilities": {k: round(v, 4) for k, v in zip(self.labels, p, strict=True)},
            "posterior": {self.clients[k]: round(v, 4) for k, v in zip(who, share, strict=True)},
        }

    def reason(self, i: int, because: str) -> str:
        """Of one query, in a line, why it is that client; because: of this query, as the field of all."""
        client, nearest = int(self.decision.client[i]), self.clients[int(self.posterior[i].argmax())]
        asked = self.clients[client] if client >= 0 else None
        share = f"{float(self.posterior[i].max()):.0%}"
        because = f" ({because})" if because else ""
        if self.abstained[i]:
            new = f" (no client has its {self.unseen[i]})" if self.unseen and self.unseen[i] else ""
            return f"unlike any client's rows{new}; the nearest is {nearest}"
        if self.rule == "global":
            return "the global model's answer"
        looks = f"looks like {nearest}'s, {share}{because}"
        if asked is None and int(self.decision.second[i]) >= 0:
            return f"{looks}; every client that could answer is full"
        if asked is None:
            return f"all answers, weighted by whose query it may be: {looks}"
        if self.rule.startswith(("consensus", "joint")):
            answer = self.labels[int(self.decision.answer[i].argmax())]
            score = float(self.decision.score[i])
            return f"{looks}; {asked} answers {answer}, which all together give {score:.0%}, more than any other's"
        return looks if asked == nearest else f"{looks}; {self.rule} asks {asked}"

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """One after the other."""
        decision = Decision(*(torch.cat(v) for v in zip(*(p.decision for p in parts), strict=True)))
        posterior, abstained = (torch.cat([getattr(p, k) for p in parts]) for k in ("posterior", "abstained"))
        because, unseen = ([w for p in parts for w in getattr(p, k)] for k in ("because", "unseen"))
        return replace(parts[0], decision=decision, posterior=posterior, abstained=abstained, unseen=unseen,
                       because=because if len(because) == len(abstained) else [])  # fmt: skip
