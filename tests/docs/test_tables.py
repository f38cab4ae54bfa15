"""The tables of the docs say what the code says."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_algorithms_is_up_to_date() -> None:
    made = runpy.run_path(str(DOCS / "make_tables.py"))["page"]()
    assert (DOCS / "algorithms.md").read_text(encoding="utf-8") == made, "run `make docs`"
