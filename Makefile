# Everything one does with a checkout; `make` alone lists it.
# A target is a line or two: what needs logic lives in scripts/.

# The interpreter for .venv. Empty: python3, or python3.13, 3.12, 3.11 where that one is too old.
PYTHON ?=
UV_VERSION := 0.13.7
BIN := .venv/bin

# `make setup` is done when this file is there. Its name carries a checksum of the checkout's path:
# a virtual environment does not survive a move, so a copied checkout builds its own.
STAMP := .stamp-$(shell pwd | cksum | cut -d' ' -f1)
READY := .venv/$(STAMP)
READY_FOR_RELEASE := .venv-release/$(STAMP)
HELD_JOBS := $(patsubst %,tests/slurm/test_%.py,a_card_that_is_lost jobs_are_held jobs_on_several_nodes \
	jobs_with_percents parts_of_several_cards slurm_numbers_cards steps_have_their_own_quota time_of_jobs \
	taking_the_fence_out ways_to_start_jobs what_goes_wrong_on_a_node)

.DEFAULT_GOAL := help
.PHONY: help setup native demo test test-cluster lint bench wheels lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-19s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## Make .venv with the pinned requirements (PYTHON=... chooses the interpreter)

$(READY): requirements/dev.txt pyproject.toml hatch_build.py scripts/setup
	@PYTHON='$(PYTHON)' scripts/setup $@ $<

$(READY_FOR_RELEASE): requirements/release.txt scripts/setup
	@PYTHON='$(PYTHON)' scripts/setup $@ $<

native: setup ## Build the parts in C, those that changed
	@$(BIN)/python -m native

demo: native ## Show Partage at work on this machine, or on simulated cards
	@$(BIN)/partage demo

# Where nothing may be left out, the release compiler has to be there: some tests are about it.
.PHONY: test-parts slurm-packages network-packages
test-parts: native slurm-packages network-packages $(if $(CI)$(PARTAGE_REQUIRE_ALL),$(READY_FOR_RELEASE))

slurm-packages network-packages:
	@scripts/$@

test: test-parts ## Run all tests that need no build of Kubernetes, on all cores (ARGS=... goes to pytest)
	@$(BIN)/python -m pytest --ignore=tests/cluster --numprocesses=auto --durations=10 $(ARGS)

test-cluster: test-parts programs $(READY_FOR_RELEASE) ## Build Kubernetes once, and run the tests on it (ARGS=... goes to pytest)
	@$(BIN)/python -m pytest -o testpaths=tests/cluster -o cache_dir=.pytest_cache/cluster --durations=10 $(ARGS)

.PHONY: test-cluster-oldest
test-cluster-oldest: test-parts programs $(READY_FOR_RELEASE) ## Build the oldest Kubernetes once, and run the tests on it (ARGS=... goes to pytest)
	@PARTAGE_KUBERNETES=oldest $(BIN)/python -m pytest -o testpaths=tests/cluster -o cache_dir=.pytest_cache/cluster-oldest --durations=10 $(ARGS)

.PHONY: newer-slurm
newer-slurm: test-parts ## Fetch a newer Slurm (24.11) once, and run the tests of held jobs on it (ARGS=... goes to pytest)
	@scripts/newer-slurm build/newer-slurm
	@PARTAGE_SLURM_TREE=$(CURDIR)/build/newer-slurm $(BIN)/python -m pytest -o testpaths= $(HELD_JOBS) $(ARGS)

lint: setup ## Check format, style, types, layers and hygiene
	@scripts/lint

bench: native ## Run the benchmarks (ARGS=... goes to them)
	@$(BIN)/python -m bench $(ARGS)

.PHONY: fence-demo
fence-demo: setup ## Show the fence at work on simulated cards
	@$(BIN)/python scripts/fence_demo.py

.PHONY: bench-fence
bench-fence: native ## Measure the fence on the simulated driver (ARGS="shares --quick", ARGS="-o json")
	@$(BIN)/python -m bench.fence $(ARGS)

.PHONY: cluster cluster-down programs
cluster: native ## Bring a Kubernetes control plane up on this machine; `make cluster-down` ends it
	@$(BIN)/python -m cluster up $(ARGS)

cluster-down: setup ## Take it down and remove its state
	@$(BIN)/python -m cluster down

.PHONY: manifests
manifests: setup ## Write what follows from the code into the chart, and render deploy/*.yaml from it
	@$(BIN)/python scripts/versions.py
	@$(BIN)/python scripts/manifests.py
	@$(BIN)/python scripts/chart_values.py
	@$(BIN)/python -m cluster manifests

programs: setup ## Build the programs that `make cluster` and the tests run, once
	@$(BIN)/python -m cluster build

wheels: $(READY_FOR_RELEASE) ## Make the wheels of a release in dist, and check what they need
	@scripts/wheels $(ARGS)

.PHONY: release
release: setup $(READY_FOR_RELEASE) ## Make all that is published of a version in dist, and check it (ARGS=--help)
	@$(BIN)/python -m release $(ARGS)

.PHONY: image
image: setup $(READY_FOR_RELEASE) ## Make the container image in dist, for amd64 and arm64 (ARGS=--help)
	@$(BIN)/python -m image $(ARGS)

lock: ## Pin the requirements again (ARGS=--upgrade takes newer versions)
	@PYTHON='$(PYTHON)' UV_VERSION=$(UV_VERSION) scripts/lock $(ARGS)

clean: ## Remove .venv, caches and build output
	rm -rf .venv .venv-lock .venv-release build dist src/partage/lib
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
