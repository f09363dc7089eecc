# Every target says in one comment what it does; `make help` prints them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The oldest Python that is supported, where there is one: what works there works on the newer ones.
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two processes: the suite waits more than it computes, and the smallest machine has two cores.
PYTEST := $(BIN)/python -m pytest
PYTEST_PARALLEL := -n 2 --dist worksteal

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

$(STAMP): requirements/dev.txt pyproject.toml
	@echo "setting up $(VENV): $$(grep -c '^[a-z].*==' $<) packages from the lock, about a minute"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

.PHONY: setup
setup: $(STAMP) ## make .venv from the lock, with the package in it

.PHONY: demo
demo: $(STAMP) ## two simulated engines, the gateway and a live view of what it measures; Ctrl-C ends it
	@# Ctrl-C is for the demo, which ends well; make would call it a failure.
	@$(BIN)/python -I -S gateway/cli/foreground.py $(BIN)/pacekeeper demo

.PHONY: test
test: check ## lint, types, floors and every test that needs nothing but Python
	@# Thousands of tests with real processes on two cores: what fails beside others has one more try, alone, in sight.
	$(PYTEST) $(PYTEST_PARALLEL) --ignore=tests/meta || { \
		echo "== what failed beside others is run once more, alone: a test that passes now has a race in it"; \
		$(PYTEST) --ignore=tests/meta --last-failed --last-failed-no-failures none --maxfail 5; }

.PHONY: check
check: lint types floors ## everything that reads the code without running it
	$(PYTEST) $(PYTEST_PARALLEL) tests/meta

.PHONY: lint
lint: $(STAMP) ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: fmt
fmt: $(STAMP) ## let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: types
types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

.PHONY: floors
floors: $(STAMP) ## import-linter: imports go down only
	$(BIN)/lint-imports --no-logo

.PHONY: coverage
coverage: $(STAMP) ## the suite with branch coverage: core 100 %, everything 90 %
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest $(PYTEST_PARALLEL) --ignore=tests/meta
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include='gateway/core/*' --fail-under=100
	$(BIN)/coverage report --fail-under=90

.PHONY: test-live
test-live: $(STAMP) ## real clients through the gateway to a real vLLM on the CPU; prepares both (2.5 GB, minutes)
	tests/live/run.sh

.PHONY: bench
bench: $(STAMP) ## side by side with other relays; prints the table, keeps it as JSON (installs the peers first)
	-$(BIN)/python -m benchmarks prepare # a peer that cannot be installed stands in the table as missing
	$(BIN)/python -m benchmarks

.PHONY: bench-micro
bench-micro: $(STAMP) ## CPU time of tap, framing, admission and settling by themselves (half a minute, quiet machine)
	$(BIN)/python -m benchmarks.micro

.PHONY: soak
soak: $(STAMP) ## 100,000 short streams, 5 % of the clients leaving: does memory or anything else grow? (five minutes)
	$(BIN)/python -m benchmarks.soak

.PHONY: figures
figures: $(STAMP) ## the published figures of the simulated deployments, measured by the gateway in real time (ten minutes)
	$(BIN)/python -m benchmarks.published

.PHONY: figures-routing
figures-routing: $(STAMP) ## the policies of routing side by side, over unequal simulated engines (an hour)
	$(BIN)/python -m benchmarks.unequal

.PHONY: docs
docs: $(STAMP) ## write the reference pages from the catalogues in the code
	$(BIN)/python -m docs.reference

.PHONY: docker-check
docker-check: $(STAMP) ## carry out the Dockerfile in a clean folder and try the result (root, no Docker needed)
	$(BIN)/python -m deploy.docker.check

# The locks come from the public index alone, whatever this machine's pip is told to look at,
# and cover every platform: uv resolves once for all of them and lists the hash of every file.
UV_COMPILE := $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 \
	--generate-hashes --custom-compile-command "make lock" pyproject.toml

.PHONY: lock
lock: $(STAMP) ## renew requirements/*.txt (hash-pinned); UPGRADE=1 takes the newest releases
	$(UV_COMPILE) $(if $(UPGRADE),--upgrade) --output-file requirements/runtime.txt
	$(UV_COMPILE) $(if $(UPGRADE),--upgrade) --constraint requirements/runtime.txt \
		--group dev --output-file requirements/dev.txt
	$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
		--custom-compile-command "make lock" --constraint requirements/dev.txt \
		--group build --output-file requirements/build.txt
