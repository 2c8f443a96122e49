# The two commands: `make scenarios` (the main job) and `make test` (everything).
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin

.PHONY: scenarios test tests banks others composed check soak benchmarks screenshots clean

scenarios: $(STAMP)
	$(BIN)/python -m pytest scenarios/ $(ARGS)

test: scenarios tests

tests: banks others composed

# Runs of their own, a few side by side; with anything else beside them they only get into each other's way.
banks: $(STAMP)
	$(BIN)/python -m pytest tests/test_banks.py $(TESTS)

# A file's tests all in one process: what they share (an engine and its experiments) is made once.
others: $(STAMP)
	$(BIN)/python -m pytest tests/ --ignore tests/test_banks.py --ignore tests/composed -n 3 --dist loadfile $(TESTS)

# Skipped where no Docker Engine has the images.
composed: $(STAMP)
	$(BIN)/python -m pytest tests/composed $(TESTS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy conftest.py

soak: $(STAMP)
	$(BIN)/python tests/soak.py $(ARGS)

benchmarks: $(STAMP)
	$(BIN)/python -m benchmarks.throughput $(ARGS)

screenshots: $(STAMP)
	$(BIN)/python tests/report/screenshots.py $(ARGS)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist *.egg-info
