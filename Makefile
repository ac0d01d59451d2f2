# Four commands, each with all of its set-up: `make figures`, `make test`, `make check`, what of the
# tests is quick, to be run while one works, and `make docs`.
# The first interpreter that runs and is of a version we test.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(SUPPORTED)' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
FIGURES ?= figures

.PHONY: figures claims test check lint docs clean bench bench-peers bench-check

figures: .venv/installed
	@for figure in fig1 fig2 fig3; do $(BIN)/jaxota run $$figure --out $(FIGURES) || exit $$?; done

# The claims of the paper at full size, and their tables in README and docs.
claims: .venv/installed
	$(BIN)/jaxota run benchmarks/paper/claims.py --out $(FIGURES) --resume
	$(BIN)/python docs/put_claims.py $(FIGURES)

test: lint
	$(BIN)/pytest -n auto --dist loadgroup

check: lint
	$(BIN)/pytest -n auto --dist loadgroup -m "not slow"

lint: .venv/tested-with
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site: its notebooks and pictures are made by the first build, in some minutes, and kept in
# build/ until their code is changed.
docs: .venv/tested-with
	$(BIN)/sphinx-build -q -W --keep-going -c docs . build/docs
	@echo "build/docs/index.html"

# The package alone, and then with what its tests need.
.venv/installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(SUPPORTED)' || \
		{ echo "jaxota needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python3.12 ..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[datasets]'
	@touch $@

.venv/tested-with: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Throughput here: all questions, with pictures; the alternatives, each in an environment of its own;
# and whether a ratio has fallen by more than 30 %.
BENCHES := against limits in_flight scaling memory compile_time mnist roofline
PEERS := torch fedjax drjax pfl flower

bench: .venv/tested-with
	@for b in $(BENCHES); do $(BIN)/python benchmarks/throughput/$$b.py --out benchmarks/throughput/results || exit $$?; done

bench-peers: $(PEERS:%=.bench/%/installed)

.bench/%/installed: benchmarks/throughput/contenders/requirements/%.txt
	@test -x .bench/$*/bin/python || $(PYTHON) -m venv .bench/$*
	.bench/$*/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

bench-check: .venv/tested-with
	$(BIN)/python benchmarks/throughput/check.py

clean:
	rm -rf .venv .bench build dist
