"""Deadlines that only some sites can miss: the others are waited for, however busy the machine is."""

from collections.abc import Mapping
from typing import Any

import pytest

from fedroute.engines.transport import Asked, Blob, Transported
from fedroute.federation.asking import Sites
from fedroute.federation.course import Course
from fedroute.federation.patience import Caller, Patience
from fedroute.federation.transport import Payload
from fedroute.tree import Tree

PATIENT = 600.0  # seconds


class Only:
    """From now on no site misses a deadline but those of `names`, which may change on the way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.names = {*names}
        ask, over, told_by, caller = Transported.ask, Transported._over, Course.told_by, Sites.caller
        only = self

        def asked(engine: Transported, i: int, *args: Any) -> Asked:
            deadline = engine.deadline
            engine.deadline = deadline if engine.clients[i] in only.names else PATIENT
            try:
                return ask(engine, i, *args)
            finally:
                engine.deadline = deadline

        def is_over(engine: Transported, out: Mapping[int, Asked], end: Patience) -> bool:
            others = (a for i, a in out.items() if engine.clients[i] not in only.names)
            return all(a.answer for a in others) and over(engine, out, end)

        def told(
            course: Course, i: int, method: str, payload: Payload, server: Tree, common: Blob | None = None,
            patience: Patience | None = None,
        ) -> Payload:  # fmt: skip
            late = course.agreement.clients[i] in only.names
            return told_by(course, i, method, payload, server, common, patience if late else Patience(PATIENT))

        def calls(sites: Sites, client: str, patience: Patience | None = None) -> Caller:
            return caller(sites, client, patience or (None if client in only.names else Patience(PATIENT)))

        monkeypatch.setattr(Transported, "ask", asked)
        monkeypatch.setattr(Transported, "_over", is_over)
        monkeypatch.setattr(Course, "told_by", told)
        monkeypatch.setattr(Sites, "caller", calls)
