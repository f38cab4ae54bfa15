# make setup: .venv with fedroute and all it needs; make demo, test, bench, lint work from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# CPU builds of torch where the index has them; constraints.txt pins everything.
STAMP := $(VENV)/.installed

.PHONY: setup demo demo-federation test bench lint docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedroute needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/fedroute demo --out demo

demo-federation: $(STAMP)
	$(BIN)/python examples/three-hospitals/down.py --remove
	$(BIN)/python examples/three-hospitals/up.py --once; code=$$?; $(BIN)/python examples/three-hospitals/down.py; exit $$code

# Hundreds of tests work with real processes and connections. One that fails runs once more at once, and is named at the
# end: where it passes then it failed by its timing or its neighbours, which is a fault of its own to mend.
test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal --reruns 1 -r fER

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python docs/make_tables.py

bench: $(STAMP)
	$(BIN)/python -m benchmarks.speed.run

clean:
	rm -rf $(VENV) .bench-venv demo
