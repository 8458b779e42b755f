# Everything runs in .venv, which `setup` makes and keeps up to date. `make run` and `make test` need nothing but this file,
# Python 3.11+ and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
VERSIONS ?= tools/versions.txt
WORKERS ?= 4
COMPILED := build/compiled.stamp
# Everything is tested with compiled code and the fast path, where they are. The behaviour of a broker is also tested in pure
# Python, which has no fast path, and sends and pulls in compiled code with the fast path switched off.
PURE_TESTS := tests/unit/protocol tests/unit/store tests/unit/transport tests/unit/broker tests/end_to_end
# Of the crashes those in the middle of appending, flushing and recovery, which are compiled in part. What others are about is
# not, and neither are benchmarks, signals and TLS.
PURE_TESTS += tests/crash/test_scenarios.py
NOT_PURE := test_s7 or test_s8 or test_s13 or test_s14 or test_i7 or test_s15 or test_s19 or test_s22 or test_s23 or test_s26
NOT_PURE += or _bench or test_stop_signals or test_tls_cluster
GENERAL_TESTS := tests/unit/broker/test_send.py tests/unit/broker/test_pull.py tests/unit/broker/test_broker.py

# Without cached bytecode pytest rewrites its plugins anew each time, which CPython 3.11 now and then fails at.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup versions java browser etcd clients jars run test pure sanitize unit interop s3a soak sim mutants check format docs bench clean

setup: $(STAMP) $(COMPILED) java

$(STAMP): pyproject.toml $(VERSIONS)
	@echo "==> Python environment in $(VENV)"
	@tools/ensure-venv $(PYTHON) $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(VERSIONS) --editable '.[dev,all]'
	@touch $(STAMP)

# Without a compiler this says so, and everything runs in Python.
$(COMPILED): $(STAMP) hatch_build.py $(wildcard native/* native/fastpath/*)
	@$(BIN)/python hatch_build.py
	@mkdir -p $(@D) && touch $@

versions:
	@tools/newest_versions $(PYTHON)

java:
	@tools/ensure-java

browser:
	@tools/ensure-browser

etcd:
	@tools/ensure-etcd

clients: $(STAMP)
	@tools/ensure-clients $(BIN)

run: setup
	@$(BIN)/rocketline demo

jars: setup clients etcd
	@$(BIN)/python -m tests.support.prefetch || [ "$${CI:-}" != true ]

test: jars browser sanitize pure
	@$(BIN)/python tools/suite -n $(WORKERS) --dist loadgroup

pure: $(STAMP) $(COMPILED)
	@echo "==> In pure Python, without the fast path"
	@ROCKETLINE_IMPL=python $(BIN)/python tools/suite -q -n $(WORKERS) --dist loadgroup -m "not interop and not slow" -k "not ($(NOT_PURE))" \
		$(PURE_TESTS)
	@ROCKETLINE_FAST_PATH=off $(BIN)/python tools/suite -q -n $(WORKERS) $(GENERAL_TESTS)

sanitize: $(STAMP)
	@tools/sanitize $(BIN)/python 5000 $(WORKERS)

unit: $(STAMP) $(COMPILED)
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not interop and not slow" tests/unit tests/property

interop: jars
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests/interop

# Hadoop's connector comes with a jar of 700 MB, so it is no part of `make test`.
s3a: setup
	@$(BIN)/python -m pytest -m large tests/spark/pipelines/test_s3a.py

soak: $(STAMP) $(COMPILED)
	@$(BIN)/python -m tests.crash.soak $(ARGS)

sim: $(STAMP) $(COMPILED)
	@PYTHONPATH=src:. $(BIN)/python -m tests.sim.day $(ARGS)
	@PYTHONPATH=src:. $(BIN)/python -m tests.sim.replicas $(ARGS)

mutants: $(STAMP)
	@PYTHONPATH=src:. $(BIN)/python -m tools.mutants $(ARGS)

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP)
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

# Its libraries are installed when it is first built; nothing else needs them.
$(VENV)/.docs-stamp: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(VERSIONS) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs-stamp
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup
	@$(BIN)/python bench/compare.py --page $(ARGS)

clean:
	@rm -rf build src/rocketline/_compiled*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
