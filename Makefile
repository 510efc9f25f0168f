# Two commands do everything from a bare checkout: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check-slow lint docs bench quality methods validity validity-full paper paper-quick wheel clean

help:             ## list the targets
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Install the pinned torch first: packages that depend on it then find it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gcig needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)    ## compare all methods on shipped data and write a report
	$(BIN)/gcig demo --out out/demo

# One thread per worker: two workers fill two cores. Coverage costs half as much again, so only test-all has it.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test: $(READY)    ## run the fast tests
	$(PYTEST) -m 'not slow'

test-all: $(READY)  ## run all tests, slow ones included, with coverage
	$(PYTEST) --cov --cov-report=term

check-slow: $(READY) ## run the slow tests alone, and record the result with the commit
	$(BIN)/python scripts/record_slow_run.py $(PYTEST) -m slow

lint: $(READY)    ## run ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(READY)    ## build the documentation as HTML under docs/_build
	rm -rf docs/api docs/gallery
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: $(READY)   ## measure the cost of the penalty and the library, as ratios
	$(BIN)/python -m benchmarks

quality: $(READY) ## measure the quality of FairX on every table, and judge it (5 folds)
	$(BIN)/python -m benchmarks.quality

methods: $(READY) ## measure all methods on four tables (5 folds)
	$(BIN)/python -m benchmarks.methods

VALIDITY := OMP_NUM_THREADS=1 $(BIN)/python -m validation
FRESH    := --out out/validity

validity: $(READY) ## test the measures on tables with known truth: a fixed subset, at most 30 minutes on two cores
	$(VALIDITY) detectors --half design $(FRESH) & $(VALIDITY) detectors --half end $(FRESH); wait
	$(VALIDITY) methods $(FRESH) & $(VALIDITY) stability $(FRESH); wait
	$(VALIDITY) tables $(FRESH)

validity-full: $(READY) ## the same on the whole grid, and whether intervals cover; resumes results/validity
	for each in "detectors --half design" "detectors --half end" power stability coverage methods tables; do \
	    $(VALIDITY) $$each --full || exit 1; done

paper: $(READY)   ## reproduce the paper (an hour), and publish it as results/paper and docs/reproduction.rst
	$(BIN)/python -m reproduction --out run/
	$(BIN)/python -m reproduction.pages run/

paper-quick: $(READY) ## reproduce comparison and ablation on two folds without tuning (five minutes)
	$(BIN)/python -m reproduction --out out/paper-quick --quick

wheel: $(READY)   ## build the sdist and the wheel, twice, and check what they contain
	rm -rf dist
	$(BIN)/python scripts/release.py build

clean:            ## remove everything that the other targets create
	rm -rf $(VENV) dist build out docs/_build docs/api docs/gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
