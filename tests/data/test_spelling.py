"""Labels written in two ways: what is refused, noted, and merged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedroute.data.federation import Federation
from fedroute.data.load import load_federation
from fedroute.data.spelling import in_yaml
from fedroute.errors import InputError

pa = pytest.importorskip("pyarrow")
Sites = dict[str, list[str]]
SITES: Sites = {"east": ["ill", "well"] * 4, "north": ["Ill", *["ill", "well"] * 3], "south": ["ill", "well"] * 4}


def csv(root: Path, sites: Sites, **keys: Any) -> Federation:
    for name, labels in sites.items():
        (root / f"{name}.csv").write_text("v,out\n" + "".join(f"{i % 3},{y}\n" for i, y in enumerate(labels)))
    paths = {name: f"{name}.csv" for name in sites}
    return load_federation({"source": "csv", "paths": paths, "label": "out"} | keys, base=root)


def parquet(root: Path, sites: Sites, **keys: Any) -> Federation:
    from pyarrow import parquet as pq

    rows = [(name, y) for name, labels in sites.items() for y in labels]
    table = {"site": [r[0] for r in rows], "out": [r[1] for r in rows], "v": [i % 3 for i in range(len(rows))]}
    pq.write_table(pa.table(table), root / "all.parquet")
    return load_federation(
        {"source": "parquet", "path": "all.parquet", "client": "site", "label": "out"} | keys, base=root
    )


def npz(root: Path, sites: Sites, **keys: Any) -> Federation:
    rows = [(name, y) for name, labels in sites.items() for y in labels]
    who, y = (np.array([r[k] for r in rows]) for k in (0, 1))
    np.savez(root / "all.npz", x=np.zeros((len(rows), 2)), y=y, who=who)
    return load_federation({"source": "npz", "path": "all.npz", "client": "who"} | keys, base=root)


def images(root: Path, sites: Sites, **keys: Any) -> Federation:
    from PIL import Image

    for name, labels in sites.items():
        for i, y in enumerate(labels):
            (root / "images" / name / y).mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 4), i).save(root / "images" / name / y / f"{i}.png")
    return load_federation({"source": "images", "path": "images"} | keys, base=root)


SOURCES = [csv, parquet, npz, images]


@pytest.mark.parametrize("source", SOURCES)
def test_case_is_refused_with_a_mend_that_works(source: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError) as e:
        source(tmp_path, SITES)
    for word in ("'Ill'", "'ill'", "north", "label_names: {Ill: ill}"):
        assert word in str(e.value)
    assert str(e.value).count("(client north)") == 1
    fed = source(tmp_path, SITES, label_names={"Ill": "ill"})
    assert fed.labels == ("ill", "well")
    assert fed.label_counts.sum() == sum(fed.sizes().tolist())
    assert int((fed.y == 0).sum()) == 12


@pytest.mark.parametrize("source", SOURCES)
def test_a_letter_at_one_client_is_noted_with_a_mend_that_works(source: Any, tmp_path: Path) -> None:
    sites = SITES | {"north": ["wel", *["ill", "well"] * 3]}
    fed = source(tmp_path, sites)
    assert [n for n in fed.notes if "occurs only" in n] == [
        "label 'wel' occurs only at north: if it is 'well' say label_names: {wel: well}"
    ]
    merged = source(tmp_path, sites, label_names={"wel": "well"})
    assert merged.labels == ("ill", "well")
    assert not [n for n in merged.notes if "occurs only" in n]


def test_two_sites_of_which_each_has_its_own_way_give_one_note_about_the_rarer(tmp_path: Path) -> None:
    fed = csv(tmp_path, {"a": ["ill"] * 4 + ["well"] * 4, "b": ["ill"] * 5 + ["wel"] * 3})
    assert [n for n in fed.notes if "occurs only" in n] == [
        "label 'wel' occurs only at b: if it is 'well' say label_names: {wel: well}"
    ]


@pytest.mark.parametrize(
    "sites",
    [
        {"a": ["dog", "cat"], "b": ["fox", "eel"]},
        {"a": ["grade 1", "grade 2"], "b": ["grade 1", "grade 3"]},
        {"a": ["1001", "1002"], "b": ["1003", "1002"]},
        {"a": ["ab", "abc"], "b": ["abc", "abd"]},
        {"a": ["well", "wel"], "b": ["wel", "well"]},
    ],
    ids=["other words", "numbered", "numbers", "too short or too far", "at both"],
)
def test_what_is_no_misspelling_gets_no_note(sites: Sites, tmp_path: Path) -> None:
    fed = csv(tmp_path, sites)
    assert set(fed.labels) == {y for labels in sites.values() for y in labels}
    assert not [n for n in fed.notes if "occurs only" in n]


@pytest.mark.parametrize("other", ["not  ill", "NotIll", "not\u00a0ill", "ｎｏｔ ill"])
def test_blanks_and_wide_letters_are_case_too(other: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="differs from 'not ill' only in case or blanks"):
        csv(tmp_path, {"a": ["not ill", "ill"], "b": ["not ill", "ill", other]})


def test_two_labels_that_are_named_are_two(tmp_path: Path) -> None:
    sites = {"a": ["A", "a", "b"], "b": ["a", "b"]}
    with pytest.raises(InputError, match=r"if two, name every label: `label_names: \{A: A, a: a, \.\.\.\}`"):
        csv(tmp_path, sites)
    assert csv(tmp_path, sites, label_names={"A": "A", "a": "a", "b": "b"}).labels == ("A", "a", "b")


def test_a_list_of_labels_that_count_as_yes_is_looked_at_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'Ill' differs from 'ill'.*positive: \[ill, Ill\]"):
        csv(tmp_path, SITES, positive=["ill"])
    assert csv(tmp_path, SITES, positive=["well"]).labels == ("other", "well")  # both ways are "other"
    noted = csv(tmp_path, SITES | {"north": ["wel", *["ill", "well"] * 3]}, positive=["well"])
    assert any("if it is 'well' say positive: [well, wel]" in n for n in noted.notes)


def test_an_unnamed_label_is_still_an_error_where_all_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="label 'maybe' is not in label_names"):
        csv(tmp_path, {"a": ["ill", "well", "maybe"], "b": ["ill"]}, label_names={"ill": "ill", "well": "well"})


@given(st.text("yesnotrueYEN1.0:,[]{}\"'#- ~é", min_size=1, max_size=6))
def test_a_mend_reads_back_from_yaml(text: str) -> None:
    assert yaml.safe_load(f"label_names: {{{in_yaml(text)}: {in_yaml(text)}}}") == {"label_names": {text: text}}


def test_a_mend_quotes_what_yaml_takes_for_true(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'label_names: \{"Yes": "yes"\}'):
        csv(tmp_path, {"a": ["yes", "no"], "b": ["Yes", "no"], "c": ["yes"]})
