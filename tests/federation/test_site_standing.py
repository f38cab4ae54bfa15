"""What a site's owner is told of how it stands: the present fault alone."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedroute.federation.agreement import Agreement
from fedroute.federation.same_rows import CHANGED, NOT_NOW, OTHERS
from fedroute.federation.site_process import Joined
from fedroute.federation.site_standing import STALE, SiteStanding, words_on
from fedroute.federation.transport import Payload, Refused
from fedroute.federation.twins import TWINS, told_to
from tests.federation.whole import Whole, config

FAILED = {"phase": "failed", "words": "north: no column x"}


class Owner:
    """What `site status` would say, by what was kept last."""

    def __init__(self) -> None:
        self.kept = list[dict[str, Any]]()
        self.standing = SiteStanding(lambda **state: self.kept.append(state))
        self.standing.is_in()

    def reads(self, asked: bool = False) -> list[str]:
        return words_on(self.kept[-1] | {"asked": asked})


def test_a_call_of_the_hub_ends_what_it_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    owner = Owner()
    owner.standing.heard(FAILED, now[0])
    assert owner.reads() == owner.reads(asked=True)
    assert owner.reads()[1:] == ["north: no column x"]
    now[0] += 10
    owner.standing.called("")
    (line,) = owner.reads(asked=True)
    assert "waits for its owner" in line
    owner.standing.heard(FAILED, now[0])  # as it stood before
    assert owner.reads(asked=True) == [line]
    owner.standing.heard(FAILED, now[0] + STALE)  # it has failed since
    assert owner.reads()[1:] == ["north: no column x"]


def test_its_own_fault_stands_at_once_until_it_is_mended() -> None:
    owner = Owner()
    owner.standing.called("no column x")
    assert owner.reads(asked=True) == ["it refuses to take part: no column x"]
    owner.standing.heard(FAILED, 1e12)
    assert owner.reads() == ["it refuses to take part: no column x"]
    owner.standing.called("")
    assert owner.reads() == []
    owner.standing.has("found by itself")
    assert owner.reads() == ["it refuses to take part: found by itself"]


def test_who_is_cut_off_reads_why_and_nothing_old() -> None:
    owner = Owner()
    owner.standing.heard(FAILED, 1e12)
    owner.standing.connected(False, "no connection to hub:1 (connection refused): is the hub running?")
    assert owner.reads() == ["no connection to hub:1 (connection refused): is the hub running?"]
    n = len(owner.kept)
    owner.standing.connected(False, owner.kept[-1]["words"])
    assert len(owner.kept) == n  # written where something is new
    owner.standing.connected(True)
    assert owner.reads() == []
    owner.standing.heard({"phase": "training", "words": TWINS}, 1e12)
    owner.standing.connected(False, "tried on")
    assert owner.reads() == [TWINS, "tried on"]  # that of the copy is why


def test_what_the_run_failed_of_before_a_site_came_is_not_told_to_it() -> None:
    state = FAILED | {"failed_at": 50.0}
    assert told_to("north", state, since=40.0) == FAILED
    assert told_to("north", state, since=60.0) == {"phase": "", "words": ""}
    assert told_to("north", {"phase": "training"}, note=TWINS) == {"phase": "training", "words": TWINS}


def test_a_fault_is_looked_at_until_it_is_gone_and_again_when_it_is_back() -> None:
    owner, waits = Owner(), list[float]()
    found = iter(["no file", "no file", "", "gone again", ""])

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            owner.standing.called("told by the hub")  # a new fault, at a call
        if len(waits) == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        owner.standing.keep_looking(lambda: next(found), wait)
    assert [k["fault"] for k in owner.kept] == ["", "no file", "", "told by the hub", "gone again", ""]
    assert waits == [5, 10, 20, 5, 5, 10, 20, 5]


def test_data_that_are_back_mend_a_fault_though_the_hub_asks_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the end of a run, and where a new one could not begin."""
    monkeypatch.setattr("fedroute.federation.site.AGAIN", 0.0)
    whole, file = Whole(tmp_path), tmp_path / "north.csv"
    before, asked = file.read_text(), {"asked": json.dumps({"federation": config().federation, "as_types": {}})}
    file.unlink()
    with pytest.raises(Refused):
        whole.sites["north"]("survey", {**asked})
    assert "north.csv" in whole.sites["north"].look()  # nothing is agreed on yet
    file.write_text(before)
    assert whole.sites["north"].look() == ""
    whole.hub(config(rounds=1)).run()
    file.unlink()
    whole.restart("north")
    site = whole.sites["north"]
    assert site.look().startswith(f"{NOT_NOW}: ")  # and not that they have changed
    assert "north.csv" in site.look()
    with pytest.raises(Refused, match=f"^{NOT_NOW}$"):  # the hub hears no name of a file
        site("hash", {"version": 1})
    file.write_text(before)
    assert site.look() == ""
    file.unlink()
    with pytest.raises(Refused, match=f"^survey: {NOT_NOW}$"):
        site("survey", {**asked})  # another run is to begin, and the rows of the last one are at hand
    assert "north.csv" in site.look()
    file.write_text(before)
    assert site.look() == ""
    told = [text for text in whole.heard["north"] if "answer to survey" in text]
    assert len(told) == 1  # that of the run: looking tells nobody anything


def test_what_only_the_hub_can_mend_is_not_forgotten_by_looking(tmp_path: Path) -> None:
    whole, given = Whole(tmp_path), config().federation
    whole.hub(config(rounds=1)).run()  # the rows of that agreement are there, and mend nothing
    whole.sites["north"].close()
    site = Joined("north", tmp_path / "north", {"path": "north.csv"}, base=tmp_path, log=lambda text: None)
    site.given = given
    assert site.look() == ""
    with pytest.raises(Refused, match=r"federation\.label"):
        site("survey", {"asked": json.dumps({"federation": given | {"label": "sex"}, "as_types": {}})})
    assert "federation.label" in site.look()
    assert site("survey", {"asked": json.dumps({"federation": site.given, "as_types": {}})})
    assert site.look() == site.fault == ""


def test_a_site_knows_its_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedroute.federation.site.AGAIN", 0.0)
    whole, file = Whole(tmp_path), tmp_path / "north.csv"
    before = file.read_text()
    assert whole.sites["north"].look() == ""
    file.unlink()
    asked: Payload = {"asked": json.dumps({"federation": config().federation, "as_types": {}})}
    with pytest.raises(Refused):
        whole.sites["north"]("survey", asked)
    assert "north.csv" in whole.sites["north"].fault
    file.write_text(before)
    whole.sites["north"]("survey", asked)
    assert whole.sites["north"].fault == ""
    whole.hub(config(rounds=1)).run()
    file.write_text(re.sub(r"\n[0-9]+,", "\n99,", before, count=1))
    whole.restart("north")
    site = whole.sites["north"]
    assert site.look() == site.fault == f"{file}: {OTHERS}: {CHANGED}"
    site("hello", {})
    assert CHANGED in site.fault
    with pytest.raises(Refused, match=f"^{re.escape(CHANGED)}$"):
        site("hash", {"version": 1})
    assert str(file) in site.fault  # the owner's own words, also after a call
    file.write_text(before)
    site("hash", {"version": 1})
    assert site.fault == ""


def test_a_fault_that_was_mended_is_one_no_more_without_a_restart(tmp_path: Path) -> None:
    """In DATA.yaml as in the file."""
    whole, data, file = Whole(tmp_path), tmp_path / "north.yaml", tmp_path / "north.csv"
    given, before = config().federation, file.read_text()
    asked: Payload = {"asked": json.dumps({"federation": given, "as_types": {}})}
    whole.hub(config(rounds=1)).run()
    form = Agreement.model_validate_json(json.loads((tmp_path / "north" / "agreed.json").read_text())["data"]).form
    data.write_text("path: north.csv\ndrop: [wrad]\n")
    site = Joined("north", tmp_path / "anew", {}, base=tmp_path, file=str(data), log=lambda text: None)
    site.given, site.data = given, data
    with pytest.raises(Refused):
        site("survey", {**asked})
    assert "no column 'wrad'" in site.look()
    data.write_text("path: north.csv\n")
    assert site.look() == ""
    data.write_text("path: north.csv\npfad: x\n")
    assert str(data) in (fault := site.look())  # before the hub asks
    assert "pfad" in fault
    data.unlink()
    assert site.look().startswith(f"{data}: cannot be read")
    data.write_text("path: north.csv\n")
    assert site.look() == ""
    file.write_text(re.sub(r"\n[0-9]+,", "\nlots,", before, count=1))
    site("survey", {**asked})  # which tells the hub, and finds no fault here
    with pytest.raises(Refused):
        site("form", {"asked": form.model_dump_json()})
    assert site.look().startswith(f"{file}, row 1: column 'age' holds 'lots', and numbers were agreed on")
    file.write_text(before)
    assert site.look() == ""


def test_a_word_that_came_into_a_column_of_numbers_is_named_to_the_owner_alone(tmp_path: Path) -> None:
    """Of rows that were agreed on; a hub hears that they have changed."""
    whole, file = Whole(tmp_path), tmp_path / "north.csv"
    whole.hub(config(rounds=1)).run()
    file.write_text(re.sub(r"\n[0-9]+,", "\nlots,", file.read_text(), count=1))
    whole.restart("north")
    with pytest.raises(Refused, match=f"^{re.escape(CHANGED)}$"):
        whole.sites["north"]("hash", {"version": 1})
    for words in (whole.sites["north"].fault, whole.sites["north"].look()):
        assert words.startswith(f"{file}, row 1: column 'age' holds 'lots'")
        assert words.endswith(CHANGED)


def test_whatever_goes_wrong_in_looking_is_a_fault_and_it_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Whole(tmp_path)
    whole.hub(config(rounds=1)).run()
    whole.restart("north")
    site = whole.sites["north"]
    with monkeypatch.context() as m:
        m.setattr("fedroute.federation.own_rows.SiteData.read", lambda *a: 1 // 0)
        assert site.look() == "reading its data raised ZeroDivisionError; the traceback is in the log of this site"
        assert site.look() == site.fault
        assert sum("1 // 0" in text for text in whole.heard["north"]) == 1
    assert site.look() == ""
