# Every target is described by the text after its `##`; `make` alone prints them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Stamps: a file stands for a finished installation and is newer than what it was made from.
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
TORCH := $(VENV)/.torch

BEST := build/gpt3-175b-best.yaml
PICTURE := build/gpt3-175b-timeline.png
OUT := build/hardware
PAGES := README.md $(wildcard docs/*.md)
COUNT ?= 60
SEED ?= 1
SECONDS_AT_MOST ?= 3600

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-all mutate fuzz lint format bench hardware reports ablation experts fit fit-kernels fit-collectives clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(CORE) ## search plans for GPT-3 175B on 1,024 A100s, draw the best, compare with measured runs
	@mkdir -p build
	$(BIN)/parsim search scenarios/gpt3-175b-dgx-a100.yaml --top 10 --save $(BEST)
	$(BIN)/parsim validate
	@echo
	$(BIN)/parsim timeline $(BEST) -o $(PICTURE)

# Real ranks: gradients of every kind of plan, checkpoints and faults; the rest is in test-slow.
RANKS := $(patsubst %,tests/executor/%.py,parallel/test_gradients pipeline/test_runner \
           training/test_trainer run/test_run run/test_user_schedule \
           checkpoint/test_checkpoints faults/test_processes)

# Ranks and commands are hundreds of processes, each of which would compile all modules again.
test test-slow test-all: export PYTHONDONTWRITEBYTECODE =

test: $(DEV) $(TORCH) ## run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "distributed and not slow" $(RANKS)

test-slow: $(DEV) $(TORCH) ## run what `make test` leaves out: the slow tests, and the other ones on real ranks
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "slow and not gpu"
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "distributed and not slow and not gpu" $(addprefix --ignore=,$(RANKS))

test-all: $(DEV) $(TORCH) ## run the tests, the slow ones too
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not gpu"

lint: $(DEV) ## check style, format, types, import layers and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(DEV) ## format the code and sort the imports
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

# In an environment of its own, so that no other target needs the tool.
mutate: $(DEV) ## change tokens of costs, schedules and the recurrence, see whether a test notices (COUNT, SEED, ROOM)
	$(PYTHON) -m venv build/mutate
	build/mutate/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt cosmic-ray==8.7.0 hatchling editables
	build/mutate/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation --editable '.[dev,fast]'
	build/mutate/bin/python -m tests.tools.mutate reports/mutation.md --count $(COUNT) --seed $(SEED) --seconds $(SECONDS_AT_MOST) $(if $(ROOM),--room $(ROOM))

bench: $(DEV) ## measure the speed of the engines, of the command line and, where torch is, the executor
	$(BIN)/python -m tests.benchmarks

fuzz: $(DEV) ## spoil every kind of file and option a user can hand over, for MINUTES=10, from SEED=0
	$(BIN)/python -m tests.fuzz --inputs 100000 --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0)

hardware: $(DEV) $(TORCH) ## calibrate, predict, run and compare on this machine, more on a GPU; results in OUT=dir, BASE=a device of the catalog like an unknown GPU
	@if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; \
	  then $(BIN)/python -m executor.first_hour $(OUT) $(if $(BASE),--base $(BASE)); \
	  else $(BIN)/python -m executor.suite $(OUT); fi

reports: $(CORE) ## predict every shipped measured run; write reports/*.md and the tables of README and docs
	$(BIN)/python -m parsim.fitting.reports.readme parsim/validation/evidence.json parsim/validation/left_out.json parsim/sim/confidence/interval.json reports/hardware reports/accuracy.md docs/timeline.png $(PAGES)
	$(BIN)/python -m parsim.fitting.reports.networks parsim/validation/evidence_networks.json parsim/validation/left_out_networks.json parsim/sim/confidence/interval_networks.json reports/hardware
	$(BIN)/python -m parsim.report.accuracy.summary $(PAGES)
	$(BIN)/python -m parsim.report.accuracy.trainings reports/trainings.md
	$(BIN)/python -m tests.benchmarks --report reports/benchmarks.md
	$(BIN)/python -m parsim.fitting.reports.strategies reports/guide.md
	$(BIN)/python -m parsim.fitting.reports.replica_spread reports/replica-spread.md
	$(BIN)/python -m parsim.fitting.reports.network reports/network.md reports/benchmarks.md tests/parsim/sim/links/simgrid_rates.json $(PAGES)

ablation: $(CORE) ## switch effects off, leave sources out; write reports/ablation.md (minutes)
	$(BIN)/python -m parsim.fitting.reports.ablation reports/ablation.md

experts: $(CORE) ## search the jobs of vendors' tuned plans; write reports/experts.md (minutes)
	$(BIN)/python -m parsim.fitting.reports.experts reports/experts.md

fit: $(CORE) ## fit the constants again and write reports/fit.md; WRITE=1 also into the catalog
	$(BIN)/python -m parsim.fitting.reports.fit reports/fit.md $(if $(WRITE),--write)

fit-kernels: $(CORE) ## fit the constants of kernels to the public tables; write residuals and reports/kernels.md
	$(BIN)/python -m parsim.fitting.reports.kernel_fit reports/kernels.md parsim/cluster/catalog/kernels

fit-collectives: $(CORE) ## fit the constants of collectives again and write reports/collectives.md
	$(BIN)/python -m parsim.fitting.reports.collective_fit reports/collectives.md

clean: ## delete .venv, build outputs and caches
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find parsim executor tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "parsim needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
	    "name another one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The build backend comes first and is pinned like the rest, so the build is not isolated.
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --editable .
	@touch $@

$(DEV): $(CORE)
	$(PIP) --no-build-isolation --editable '.[dev,fast]'
	@touch $@

$(TORCH): $(CORE)
	$(PIP) $(shell grep -E '^(tokenizers|torch)==' constraints.txt)
	@touch $@
