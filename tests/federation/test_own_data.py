"""What a site's own data may not do in silence: change, or bring a label or a column that no other site has."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from fedroute.config import from_dict
from fedroute.data.load import load_federation
from fedroute.errors import InputError
from fedroute.federation.check import check_data
from fedroute.federation.consent import ANSWER, site_manifest
from fedroute.federation.examine import AS_AGREED, examine
from fedroute.federation.folders import SiteFolder
from fedroute.federation.hub_config import checked_config
from fedroute.federation.own_labels import of_one_site
from fedroute.federation.own_rows import SiteData
from fedroute.federation.reaching import Way
from fedroute.federation.same_rows import CHANGED, ROWS, rows_sha256
from fedroute.federation.site_spec import data_spec
from fedroute.federation.transport import Payload, Refused, size
from tests.federation.agreeing import Sites, lines
from tests.federation.federations import wait_for
from tests.federation.whole import ROWS as SITES
from tests.federation.whole import Whole, config

SPEC: dict[str, Any] = {"source": "csv", "label": "ill"}


def table(path: Path, n: int = 40, **columns: Any) -> None:
    made: dict[str, Any] = {"age": lambda i: 20.5 + i, "ill": lambda i: ["no", "yes"][i % 2]} | columns
    rows = [",".join(str(of(i)) for of in made.values()) for i in range(n)]
    path.write_text("\n".join([",".join(made), *rows]) + "\n")


def three(base: Path, south: dict[str, Any], **data: Any) -> Sites:
    for c in ("east", "north", "south"):
        table(base / f"{c}.csv", **(south if c == "south" else {}))
    return Sites(base, {c: {"path": f"{c}.csv"} | (data if c == "south" else {}) for c in ("east", "north", "south")})


# changed data


def test_other_rows_after_a_restart_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows, with the same labels: another value alone."""
    monkeypatch.setattr("fedroute.federation.site.AGAIN", 0.0)
    whole = Whole(tmp_path)
    whole.hub(config(rounds=1)).run()
    file = tmp_path / "north.csv"
    before = file.read_text()
    head, first, *rest = before.splitlines()
    whole.restart("north")
    assert whole.sites["north"]("hash", {"version": 1})["sha256"]
    file.write_text("\n".join([head, re.sub(r"^[^,]*", "99", first), *rest]) + "\n")
    whole.restart("north")
    site = whole.sites["north"]
    terms = (tmp_path / "north" / "agreed.json").read_text()
    calls: list[tuple[str, Payload]] = [("hash", {"version": 1}), ("agree", {"terms": terms}), ("query", {})]
    for method, payload in calls:
        with pytest.raises(Refused, match=re.escape(CHANGED)):
            site(method, payload)
    file.write_text("\n".join([head, *rest]) + "\n")  # a row less
    with pytest.raises(Refused, match=re.escape(CHANGED)):
        site("hash", {"version": 1})
    file.write_text(before)
    assert site("hash", {"version": 1})["sha256"]  # put back: without a restart
    (kept,) = tmp_path.glob(f"north/runs/*/{ROWS}")
    sent = [*whole.said, *((f.read_text()) for f in (tmp_path / "run").glob("*.json"))]
    assert not any(kept.read_text().strip() in text for text in sent)


def test_the_dry_run_tells_whether_the_rows_are_those_agreed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedroute.federation.examine.days_left", lambda file, now: 900.0)
    monkeypatch.setattr("fedroute.federation.examine.reach", lambda *place: Way(""))
    whole, site = Whole(tmp_path), SiteFolder(tmp_path / "north")
    (site.kit / "startup").mkdir(parents=True)
    for name in ("client.crt", "client.key"):
        (site.kit / "startup" / name).touch(0o600)
    (tmp_path / "north.yaml").write_text("path: north.csv\n")
    site.keep(name="north", host="hub", port=1, hub="hub", data=str(tmp_path / "north.yaml"))
    given = config().resolved()
    site.config.write_text(json.dumps(given))

    def said(level: str) -> list[str]:
        return [f.text for f in examine(site) if f.level == level]

    assert said("refused") == []
    assert AS_AGREED not in said("ok")  # nothing is
    whole.hub(config(rounds=1)).run()
    (kept,) = tmp_path.glob(f"north/runs/*/{ROWS}")
    first = kept.read_text()
    assert AS_AGREED in said("ok")
    file = tmp_path / "north.csv"
    before = file.read_text()
    changes = {
        "a value": re.sub(r"\n[0-9]+,", "\n99,", before, count=1),
        "a row less": before.rpartition("\n")[0].rpartition("\n")[0] + "\n",
        "a label that nobody had": re.sub(r",(ill|well)\n", ",unheard of\n", before),
    }
    for what, text in changes.items():
        file.write_text(text)
        (why,) = said("refused")
        assert why.startswith(str(file)), what
        assert why.endswith(CHANGED)
        assert AS_AGREED not in said("ok")
    file.unlink()
    (why,) = said("refused")  # the first thing to mend, once
    assert "north.csv" in why
    file.write_text(changes["a value"])
    site.config.write_text(json.dumps(given | {"federation": given["federation"] | {"label": "sex"}}))
    assert said("refused") == []  # what was agreed on was another config's
    site.config.write_text(json.dumps(given))
    file.write_text(before)
    assert AS_AGREED in said("ok")
    assert kept.read_text() == first
    assert len([*tmp_path.glob(f"north/runs/*/{ROWS}")]) == 1


def test_the_hash_is_of_the_rows_as_they_are_read(tmp_path: Path) -> None:
    sites = three(tmp_path, {})
    form = sites.agree(SPEC).form

    def found(**columns: Any) -> str:
        table(tmp_path / "south.csv", **columns)
        return rows_sha256(SiteData.read({"path": "south.csv"}, tmp_path, SPEC, "south").prepared(form))

    first = found()
    assert found() == first
    assert found(age=lambda i: f"{20.5 + i:.3f}") == first  # the same numbers written otherwise
    assert found(age=lambda i: 10 * (20.5 + i)) != first
    assert found(age=lambda i: 20.5 + i if i else "") != first
    assert found(ill=lambda i: ["yes", "no"][i % 2]) != first


# labels


def odd(label: str, n: int = 4) -> Any:
    return lambda i: label if i % 2 and i < 2 * n else ["no", "yes"][i % 2]


@pytest.mark.parametrize(("label", "why"), [("yess", "only at this site"), ("Yes", "only in case or blanks")])
def test_a_misspelt_label_is_refused_and_the_mend_mends(tmp_path: Path, label: str, why: str) -> None:
    with pytest.raises(InputError) as found:
        three(tmp_path, {"ill": odd(label)}).agree(SPEC)
    (said,) = lines(found.value)
    assert said.startswith(f"south: label '{label}' (4 rows)")
    assert why in said
    import yaml

    mend = re.findall(r"`(label_names: \{.*?\})`", said)
    assert "south's DATA.yaml" in said
    checked = check_data({"path": "south.csv"}, SPEC, "south", tmp_path)
    assert mend[0] in "\n".join(f.text for f in checked if f.level != "ok")
    agreement = three(tmp_path, {"ill": odd(label)}, **yaml.safe_load(mend[0])).agree(SPEC)
    assert agreement.labels == ("no", "yes")
    assert not agreement.sole
    for meant in mend[1:]:
        assert three(tmp_path, {"ill": odd(label)}, **yaml.safe_load(meant)).agree(SPEC).labels == ("no", "yes", label)


def test_two_that_are_misspelt_alike_are_named_both(tmp_path: Path) -> None:
    sites = three(tmp_path, {"ill": odd("Yes")})
    table(tmp_path / "north.csv", ill=odd("Yes", 3))
    with pytest.raises(InputError) as found:
        sites.agree(SPEC)
    assert [text.split(" differs")[0] for text in lines(found.value)] == [
        "north: label 'Yes' (3 rows)", "south: label 'Yes' (4 rows)",
    ]  # fmt: skip


def test_labels_in_two_cases_are_named_once_each(tmp_path: Path) -> None:
    sites = three(tmp_path, {"ill": lambda i: ["Gesund", "Krank"][i % 2]})
    for c in ("east", "north"):
        table(tmp_path / f"{c}.csv", ill=lambda i: ["gesund", "krank"][i % 2])
    with pytest.raises(InputError) as found:
        sites.agree(SPEC)
    said = lines(found.value)
    assert [text.split(" (")[0] for text in said] == ["south: label 'Gesund'", "south: label 'Krank'"]
    assert ["{Gesund: gesund}" in said[0], "{Krank: krank}" in said[1]] == [True, True]
    for labels in (["Gesund", "Krank"], ["gesund", "krank"]):  # one site against one, whichever is the odd one
        table(tmp_path / "north.csv", ill=lambda i, labels=labels: labels[i % 2])
        table(tmp_path / "south.csv", ill=lambda i, labels=labels: [*map(str.swapcase, labels)][i % 2])
        two = Sites(tmp_path, {c: {"path": f"{c}.csv"} for c in ("north", "south")})
        with pytest.raises(InputError) as found:
            two.agree(SPEC)
        assert len(lines(found.value)) == 2


def test_a_label_of_one_site_is_told(tmp_path: Path) -> None:
    agreement = three(tmp_path, {"ill": odd("perhaps")}).agree(SPEC)
    assert agreement.sole == {"south": "only south has the label perhaps (4 rows)"}
    assert not agreement.for_site("north").sole
    from fedroute.algorithms import make
    from fedroute.config import Training
    from fedroute.core import Task
    from fedroute.federation.agreement import hub_federation
    from fedroute.models import build
    from fedroute.rounds import prepare
    from fedroute.task import loss_for

    hub, t = hub_federation(agreement), Training(rounds=1)
    alg = prepare(make("fedavg"), Task(*build("mlp", hub, 0), loss_for(hub.y)), t)
    shown = site_manifest(agreement.for_site("south"), alg, t, "south", router=False)
    assert shown["notes"] == [agreement.sole["south"]]
    assert of_one_site(("a",), ["x"], {"x": [[3]]}) == {}  # one site, and no other to have it


def test_labels_have_names_in_data_yaml(tmp_path: Path) -> None:
    sites = three(tmp_path, {"ill": lambda i: i % 2}, label_names={0: "no", 1: "yes"})
    assert sites.agree(SPEC).labels == ("no", "yes")
    with pytest.raises(InputError, match=r"no label 'maybe' \(label_names in DATA.yaml\)"):
        three(tmp_path, {}, label_names={"maybe": "no"}).agree(SPEC)
    with pytest.raises(InputError, match="put the label in quotes"):
        data_spec({"path": "a.csv", "label_names": {"yess": True}})
    with pytest.raises(
        InputError, match=r"lable_names: no such key; did you mean 'label_names'\? There is .*rename.*drop"
    ):
        data_spec({"path": "a.csv", "lable_names": {}})


# columns


def test_a_column_more_is_named_and_can_be_dropped(tmp_path: Path) -> None:
    more = {"pulse": lambda i: 60.5 + i % 7}
    with pytest.raises(InputError) as found:
        three(tmp_path, more).agree(SPEC)
    (said,) = lines(found.value)
    assert said.startswith("south: has a column 'pulse' that east, north have not")
    assert re.search(r"`drop: \[pulse\]`.*DATA.yaml.*hub says .*missing_columns: fill.*join anew", said)
    assert [c.name for c in three(tmp_path, more, drop=["pulse"]).agree(SPEC).columns] == ["age"]
    with pytest.raises(InputError, match=r"no column 'puls' \(drop\); did you mean 'pulse'"):
        three(tmp_path, more, drop=["puls"]).agree(SPEC)
    with pytest.raises(InputError, match="'ill' is the federation's label"):
        three(tmp_path, more, drop=["ill"]).agree(SPEC)


@pytest.mark.parametrize("column", ["visit_id", "seen"])
def test_a_column_more_that_is_not_used_anyway(tmp_path: Path, column: str) -> None:
    more = {column: lambda i: f"2024-01-{1 + i % 28:02d}" if column == "seen" else f"p{1000 + i}"}
    agreement = three(tmp_path, more).agree(SPEC)
    assert [c.name for c in agreement.form.columns] == ["age"]
    paths = {c: f"{c}.csv" for c in ("east", "north", "south")}
    assert load_federation(SPEC | {"paths": paths}, base=tmp_path).columns == ("age",)


def test_a_simulation_names_who_has_more(tmp_path: Path) -> None:
    three(tmp_path, {"pulse": lambda i: 60.5 + i % 7})
    paths = {c: f"{c}.csv" for c in ("east", "north", "south")}
    with pytest.raises(
        InputError, match=r"south.*: has a column 'pulse' that .*east.* have not; say `drop: \[pulse\]`"
    ):
        load_federation(SPEC | {"paths": paths}, base=tmp_path)


# what is sent and what is listed


def test_asking_whether_the_owner_has_accepted_is_small_and_said_once(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    whole.restart("north", accept="")

    def stop() -> None:  # it asks for as long as it takes
        wait_for(lambda: whole.network.calls["north", "agree"] >= 3)
        whole.stop.set()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        whole.hub(config()).run()
    site, heard = whole.sites["north"], whole.heard["north"]
    about = [text for text in heard if "accept" in text]
    assert len(about) == 1
    assert f"fedroute site accept {tmp_path / 'north'}" in about[0]
    shown = json.loads((tmp_path / "north" / "manifest.json").read_text())
    (row,) = (r for r in shown["rows"] if "owner has accepted, and" in r["what"])
    reply = site("hello", {})
    assert size(reply) < next(r["bytes"] for r in shown["rows"] if "clock" in r["what"])
    assert row["bytes"] == ANSWER == size({"sha256": shown["sha256"], "accepted": False})
    assert f"{ANSWER} bytes" in about[0]


def test_what_a_guide_takes_is_what_was_listed(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    whole.hub(from_dict(config(rounds=1).resolved() | {"router": "auto"})).run()
    for client in SITES:
        sent = [int(m[1].replace(",", "")) for text in whole.heard[client]
                if (m := re.search(r"answer to sums: ([\d,]+) bytes", text))]  # fmt: skip
        rows = json.loads((tmp_path / client / "manifest.json").read_text())["rows"]
        listed = [r["bytes"] for r in rows if r["when"] == "once, at the end" and "ledger" not in r["what"]]
        assert len(sent) == 7
        assert 0.5 * sum(listed) < sum(sent) <= sum(listed)


# the hub's config


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"algorithm": {"name": "fedavg", "private": ["last"]}}, "last"),
        ({"algorithm": {"name": "fedprox", "mue": 0.1}}, "mue"),
        ({"federation": {"source": "csv", "label": "ill", "partition": {"method": "iid"}}}, "partition"),
        ({"model": {"name": "mpl"}}, "mlp"),
    ],
)
def test_a_wrong_config_is_found_before_there_is_a_hub(change: dict[str, Any], why: str) -> None:
    good = {"federation": SPEC, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"}}
    assert checked_config(from_dict(good))[1] == []
    with pytest.raises(InputError, match=why):
        checked_config(from_dict(good | change))


def test_a_hub_s_config_has_no_paths() -> None:
    given = {"federation": SPEC | {"path": "all.csv"}, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"}}
    made, notes = checked_config(from_dict(given))
    assert not {"path", "paths"} & {*made.federation}
    images = from_dict(given | {"federation": {"source": "images", "path": "scans", "layout": "class/file"}})
    kept = checked_config(images)[0].resolved()
    assert "scans" not in str(kept)
    assert from_dict(kept).federation["source"] == "images"  # the hub reads it again when it starts
    assert notes == ["federation.path: left out; where its rows lie each site says in its own DATA.yaml"]


def test_the_hub_s_own_fault_is_said_before_sites_are_asked(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    with pytest.raises(InputError, match=r"the hub's own config: .*last"):
        whole.hub(config({"name": "fedavg", "private": ["last"]})).run()
    assert not any("cannot take part" in text for heard in whole.heard.values() for text in heard)
    assert not (tmp_path / "north" / "manifest.json").exists()


def test_the_data_file_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("path: nowhere.csv\n")
    (found,) = check_data(tmp_path / "mine.yaml", SPEC, "south")
    assert found.text.startswith(f"{tmp_path / 'mine.yaml'} path: no file")
