# Every target but help and lock sets up `.venv` first, which takes a moment when it is already there.
PYTHON ?= python3
VENV := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types docs lock

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do printf '  make %-7s %s\n' "$$name" "$$text"; done

setup: ## make .venv (PYTHON=python3.12 picks another Python)
	@$(PYTHON) scripts/set_up.py

demo: setup ## make the example model in evals/tasks/decoder faster (in a copy with a repository of its own, .demo)
	@rm -rf .demo && mkdir .demo && cp -r evals/tasks/decoder .demo/decoder
	@cd .demo/decoder && git init --quiet --template= --initial-branch=main && git add --all \
		&& git -c user.name=You -c user.email=you@localhost -c commit.gpgsign=false -c core.hooksPath=/dev/null \
			commit --quiet --message="The decoder as it came"
	@$(VENV)/agent run --target .demo/decoder --entry bench.py --python $(VENV)/python --budget-minutes 7 --yes

test: setup ## run the tests: two at a time, then those that must have the machine or its GPU for themselves
	@$(VENV)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder --durations=40 --durations-min=10 -m "not alone and not gpu"
	@$(VENV)/python -m pytest --durations=20 --durations-min=10 -m "alone or gpu"

lint: setup ## check the style
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check --quiet .

types: setup ## check the types, for the guest also under the oldest Python a target may have
	@$(VENV)/mypy
	@$(VENV)/mypy --python-version 3.10 sandbox/guest

docs: setup ## write the generated pages of docs/ anew
	@$(VENV)/python -m scripts.exit_status && $(VENV)/python -m scripts.promises && $(VENV)/python -m evals results

lock: ## write requirements.lock anew (with the oldest supported Python)
	@$(PYTHON) scripts/lock.py
