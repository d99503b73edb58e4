# Each target makes what it needs; nothing has to be installed first but Python 3.11 or newer, git and make.
# PYTHON=/path/to/python names the interpreter when the first suitable one on PATH is not wanted.
# The many processes that tests start must not each compile the package anew.
export PYTHONDONTWRITEBYTECODE :=
.NOTPARALLEL:
.PHONY: help demo test coverage mutants soak lint bench live clean

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RINGS ?= tests
# Half of a test's time is waiting, for a disk or a process: one worker more than there are processors.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
CANDIDATES := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)

help:
	@echo "make demo    watch the whole promise hold on real parts"
	@echo "make test    run every test (RINGS=tests/unit for one ring)"
	@echo "make coverage hold the rules, coordinator, removal and sweep to the last branch"
	@echo "make mutants see whether the tests notice a changed line of those (TARGETS=rules for one part)"
	@echo "make soak    search for faults for HOURS=n hours and write docs/soak/DATE.md; without HOURS, say how"
	@echo "make lint    run ruff, mypy, basedpyright and import-linter, and check docker/"
	@echo "make bench   run the benchmarks"
	@echo "make live    try every store on its real engine (heavy; LIVE=letta for one part); writes docs/stores.md"
	@echo "make clean   remove what these targets made"

demo: $(VENV)/.has-demo
	$(BIN)/custody-sync demo

# Hundreds of tests start a process, and where Python keeps no bytecode each would compile everything anew.
test: $(VENV)/.has-test
	@$(BIN)/python -m compileall -q custody_sync tests
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(RINGS)

# Not a part of the tests: what is covered by which tests is told in two files.
coverage: $(VENV)/.has-test
	COVERAGE_FILE=build/coverage $(BIN)/python -m pytest -q -k "not postgres" --cov --cov-config=tests/covered.toml --cov-report=term @tests/covering.txt

# MUTANTS takes options: --fresh, --children=n.
mutants: $(VENV)/.has-mutants
	@cd tests && ../$(BIN)/python -m mutants $(MUTANTS) $(TARGETS)

# SOAK names some of its parts.
soak: $(VENV)/.has-mutants
	@cd tests && ../$(BIN)/python -m soak $(if $(HOURS),--hours $(HOURS)) $(SOAK)

lint: $(VENV)/.has-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "$(BIN)/mypy; $(BIN)/mypy tests/typing; beside them $(BIN)/basedpyright, whose findings follow theirs"
	@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; status=0; \
	$(BIN)/basedpyright >"$$said" 2>&1 & \
	$(BIN)/mypy || status=1; $(BIN)/mypy tests/typing || status=1; \
	wait $$! || status=1; cat "$$said"; exit $$status
	$(BIN)/lint-imports
	$(BIN)/hadolint docker/Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml
	$(BIN)/kubernetes-validate --strict docker/kubernetes/*.yaml

bench: $(VENV)/.has-demo
	@set -e; for script in benchmarks/[!_]*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

# Not a part of anything else: it installs whole servers, and takes the better part of an hour.
live: $(VENV)/pyvenv.cfg
	$(BIN)/python docker/live/run.py $(LIVE)

clean:
	rm -rf $(VENV) benchmarks/.venv-minilm .live .soak build dist custody_sync.egg-info .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.has-demo: EXTRAS = all
$(VENV)/.has-test: EXTRAS = all,test
$(VENV)/.has-lint: EXTRAS = all,test,lint
$(VENV)/.has-mutants: EXTRAS = all,test,mutants

$(VENV)/.has-%: pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "installing custody-sync[$(EXTRAS)] into $(VENV)"
	@$(PIP) --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/pyvenv.cfg:
	@set -e; for python in $(CANDIDATES); do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "making $(VENV) with $$($$python --version)"; \
			$$python -m venv $(VENV) && exit 0; \
			rm -rf $(VENV); \
			echo "$$python cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; \
			exit 1; \
		fi; \
	done; \
	echo "custody-sync needs Python 3.11 or newer and found none as: $(CANDIDATES); name one: make PYTHON=/path/to/python3" >&2; \
	exit 1
