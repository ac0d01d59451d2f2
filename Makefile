# Each target installs what it needs: `make figures`, `make test`, `make check` (the quick tests, to
# run while you work) and `make docs`.

# Use the first interpreter of a tested version.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(SUPPORTED)' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
FIGURES ?= figures

.PHONY: figures claims test check lint docs clean bench bench-peers bench-check accelerators release newest

figures: .venv/installed
	@for figure in fig1 fig2 fig3; do $(BIN)/jaxota run $$figure --out $(FIGURES) || exit $$?; done

# Test the claims of the paper at full size, and update the tables in README and docs.
claims: .venv/installed
	$(BIN)/jaxota run benchmarks/paper/claims.py --set exact=1000 --out $(FIGURES) --resume
	$(BIN)/jaxota run benchmarks/paper/readings.py --out $(FIGURES) --resume
	$(BIN)/python docs/put_claims.py $(FIGURES)

test: lint
	$(BIN)/pytest -n auto --dist loadgroup

check: lint
	$(BIN)/pytest -n auto --dist loadgroup -m "not slow"

lint: .venv/tested-with
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Build the site. The first build runs the notebooks and draws the pictures, which takes minutes; it
# keeps them in build/ until their code changes. After a change of the package: rm -r build.
docs: .venv/tested-with
	$(BIN)/sphinx-build -q -W --keep-going -c docs . build/docs
	@echo "build/docs/index.html"

# Install the package alone; the next target adds what the tests need.
.venv/installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(SUPPORTED)' || \
		{ echo "jaxota needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python3.12 ..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[datasets]'
	@touch $@

.venv/tested-with: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Throughput: `bench` runs all benchmarks and draws their pictures, `bench-peers` installs the
# alternatives, each in its own environment, and `bench-check` fails if a ratio fell by over 30 %.
BENCHES := against limits in_flight scaling memory compile_time mnist
PEERS := torch fedjax drjax pfl flower

bench: .venv/tested-with
	@for b in $(BENCHES); do $(BIN)/python benchmarks/throughput/$$b.py --out benchmarks/throughput/results || exit $$?; done; $(BIN)/python docs/put_speed.py

bench-peers: $(PEERS:%=.bench/%/installed)

.bench/%/installed: benchmarks/throughput/contenders/requirements/%.txt
	@test -x .bench/$*/bin/python || $(PYTHON) -m venv .bench/$*
	.bench/$*/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Compile for TPUs and GPUs that are not here: tests, and the tables of docs/accelerators.md. The
# compilers (0.8 GB, for jax 0.10.1 and so Python 3.11) have an environment of their own; --no-deps
# leaves out the CUDA libraries, which only running needs.
ACCELERATORS := .bench/accelerators
accelerators: $(ACCELERATORS)/compilers
	$(ACCELERATORS)/bin/pytest tests/test_accelerators.py tests/test_compile.py
	$(ACCELERATORS)/bin/python benchmarks/throughput/accelerators.py --out benchmarks/throughput/results
	$(ACCELERATORS)/bin/python docs/put_accelerators.py

$(ACCELERATORS)/compilers: benchmarks/throughput/contenders/requirements/accelerators.txt pyproject.toml constraints.txt
	@test -x $(ACCELERATORS)/bin/python || $(PYTHON) -m venv $(ACCELERATORS)
	$(ACCELERATORS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(ACCELERATORS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

bench-check: .venv/tested-with
	$(BIN)/python benchmarks/throughput/check.py

# Make what a release consists of: wheel and sdist in dist/, checked in an environment of their own.
# Before: set __version__ in jaxota/__init__.py and the version in CITATION.cff and README.md, and
# rename the changelog's section Unreleased. After: git tag v$(VERSION), and put dist/ where it belongs.
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' jaxota/__init__.py)
release: .venv/tested-with
	@grep -q '^## $(VERSION)' CHANGELOG.md || { echo "CHANGELOG.md has no section ## $(VERSION)" >&2; exit 2; }
	rm -rf dist && $(BIN)/pip wheel --quiet --no-deps -w dist .
	$(BIN)/pip install --quiet build && $(BIN)/python -m build --sdist --outdir dist .
	$(PYTHON) -m venv dist/.check && dist/.check/bin/pip install --quiet -c constraints.txt dist/*.whl
	cd dist && .check/bin/jaxota run fig1 --trials 2 --rounds 2 --out .check/out
	rm -rf dist/.check; ls dist

# The tests on the newest jax that pip finds, whatever constraints.txt pins: to be run every night.
newest:
	@test -x .venv-newest/bin/python || $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet --upgrade -e '.[dev]'
	.venv-newest/bin/pytest -n auto --dist loadgroup -m "not slow"

clean:
	rm -rf .venv .venv-newest .bench build dist
