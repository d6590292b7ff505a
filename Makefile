# make run   train the four first-light arms on real text and write their report
# make test  run every test
# make check lint, format and type check
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two busy OpenMP threads on a shared machine can be many times slower than one that sleeps when idle.
export OMP_WAIT_POLICY ?= passive
export GOMP_SPINCOUNT ?= 0

.PHONY: run test quick check format clean

run: $(VENV)/.core
	$(BIN)/streamgauge compare --preset first-light --out runs/first-light

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 $(ARGS)

quick: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow" $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist src/*.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	touch $(VENV)/.core $@
