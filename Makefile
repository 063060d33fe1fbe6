# Every target but help and lock sets up `.venv` first, which takes a moment when it is already there.
PYTHON ?= python3
VENV := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-gpu lint types docs lock

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

setup: ## make .venv (PYTHON=python3.12 picks another Python)
	@$(PYTHON) scripts/set_up.py

demo: ## make the example model in evals/tasks/decoder faster (in a copy with a repository of its own, .demo)
	@$(PYTHON) scripts/set_up.py --lean
	@rm -rf .demo && mkdir .demo && cp -r evals/tasks/decoder .demo/decoder
	@cd .demo/decoder && git init --quiet --template= --initial-branch=main && git add --all \
		&& git -c user.name=You -c user.email=you@localhost -c commit.gpgsign=false -c core.hooksPath=/dev/null \
			commit --quiet --message="The decoder as it came"
	@$(VENV)/agent run --target .demo/decoder --entry bench.py --python $(VENV)/python --budget-minutes 7 --yes

TWO_AT_A_TIME := --numprocesses=2 --dist=worksteal
test: setup ## run the quick tests, in ten minutes on two cores: two at a time, then those that judge by the real clock
	@$(VENV)/python -m pytest $(TWO_AT_A_TIME) --durations=10 -m "not alone and not slow and not gpu"
	@$(VENV)/python -m pytest --durations=10 -m "alone and not slow and not gpu"

test-all: setup ## run all tests that need no GPU, in 35 minutes; RECORD=--record-durations keeps how long each takes
	@$(VENV)/python -m pytest $(TWO_AT_A_TIME) $(RECORD) --durations=20 -m "not alone and not gpu"
	@$(VENV)/python -m pytest $(RECORD) --durations=20 -m "alone and not gpu"

test-gpu: setup ## run the tests that need a GPU
	@$(VENV)/python -m pytest --durations=20 -m gpu

lint: setup ## check the style
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check --quiet .

types: setup ## check the types, for the guest also under the oldest Python a target may have
	@$(VENV)/mypy
	@$(VENV)/mypy --python-version 3.10 sandbox/guest

docs: setup ## write the generated pages of docs/ again
	@$(VENV)/python -m scripts.exit_status && $(VENV)/python -m scripts.promises && $(VENV)/python -m scripts.guards
	@$(VENV)/python -m evals results

lock: ## write requirements.lock again (with the oldest supported Python)
	@$(PYTHON) scripts/lock.py
