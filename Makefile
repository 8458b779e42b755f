# Everything runs in .venv, which `setup` makes and keeps up to date. `make run` and `make test` need nothing but this file,
# Python 3.11+ and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
WORKERS ?= 4
TWIN := build/twin.stamp
# Everything is tested with the compiled twin, if there is one; this much also without it.
PURE_TESTS := tests/unit/protocol tests/unit/store tests/unit/transport tests/unit/broker/test_send.py tests/unit/broker/test_pull.py

# Without cached bytecode pytest rewrites its plugins anew each time, which CPython 3.11 now and then fails at.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup java jars run test pure unit interop soak sim check format bench clean

setup: $(STAMP) $(TWIN) java

$(STAMP): pyproject.toml
	@echo "==> Python environment in $(VENV)"
	@tools/ensure-venv $(PYTHON) $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark,otlp]'
	@touch $(STAMP)

# Without a compiler this says so, and everything runs in Python.
$(TWIN): $(STAMP) hatch_build.py $(wildcard native/*)
	@$(BIN)/python hatch_build.py
	@mkdir -p $(@D) && touch $@

java:
	@tools/ensure-java

run: setup
	@$(BIN)/rocketline demo

jars: setup
	@$(BIN)/python -m tests.support.prefetch || [ "$${CI:-}" != true ]

test: jars pure
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

pure: $(STAMP)
	@ROCKETLINE_IMPL=python $(BIN)/python -m pytest -n $(WORKERS) -m "not interop and not slow" $(PURE_TESTS)

unit: $(STAMP) $(TWIN)
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not interop and not slow" tests/unit tests/property

interop: jars
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests/interop

soak: $(STAMP) $(TWIN)
	@$(BIN)/python -m tests.crash.soak $(ARGS)

sim: $(STAMP) $(TWIN)
	@PYTHONPATH=src:. $(BIN)/python -m tests.sim.day $(ARGS)

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP)
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

bench: setup
	@$(BIN)/python bench/compare.py --page $(ARGS)

clean:
	@rm -rf build src/rocketline/_compiled*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
