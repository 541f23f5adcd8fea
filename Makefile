# Everything is set up in .venv, from pyproject.toml and constraints.txt. `make help` lists what there is.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test quick soak browser sanitize aarch64 results lint types format clean

help:  ## what there is
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

NATIVE := $(wildcard src/elmokit/model/kernels/native/*)

.venv/installed: pyproject.toml setup.py constraints.txt $(NATIVE)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/installed  ## one word in several contexts, layer by layer; vectors to demo-output/
	$(BIN)/python examples/contexts.py

test: .venv/installed  ## all tests
	$(BIN)/python -m pytest -n 2

quick: .venv/installed  ## all tests but the slow ones
	$(BIN)/python -m pytest -n 2 -m "not slow"

MINUTES ?= 20
SEED ?= 0
soak: .venv/installed  ## jobs killed at random, damaged and hostile files, for MINUTES (20), by SEED (0): a table of cases and failures
	$(BIN)/python tools/soak --minutes $(MINUTES) --seed $(SEED)

browser: .venv/installed  ## the playground in Chromium, with axe-core where npm has it
	$(MAKE) --no-print-directory node_modules/axe-core || echo 'without axe-core: its tests are skipped'
	$(BIN)/python -m pytest tests/test_play_browser.py

node_modules/axe-core:
	npm install --no-save --no-package-lock --no-audit --no-fund --silent axe-core@4

sanitize: .venv/installed  ## the tests of the kernels under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/python tools/sanitize.py

aarch64: .venv/installed  ## the kernels cross-compiled for aarch64, run under qemu and compared; their inner loops
	$(BIN)/python tools/aarch64

DATA ?= ../shared/data
MODEL ?= en-small
RUNS ?= build/runs
results: .venv/installed  ## docs/results.md: the tasks with ELMo and without; hours, and it goes on where it stopped
	$(BIN)/elmo study tasks --data $(DATA) --model $(MODEL) --out $(RUNS) --page docs/results.md

lint: .venv/installed  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed  ## mypy, strict on src
	$(BIN)/mypy

format: .venv/installed  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what was set up and made here
	rm -rf .venv node_modules demo-output build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
