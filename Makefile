# What is done to this repository. Each target first makes .venv what requirements.txt says; nothing is global.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# The longest first, so that none is left alone at the end. Most of them wait for most of their time.
SUITES := $(wildcard tests/mutations tests/e2e tests/chaos tests/concurrency tests/integration tests/unit)
ABREAST := -n 3 --dist loadfile --no-loadscope-reorder --durations=25

export UV_PYTHON_DOWNLOADS := never

.PHONY: help up demo test check fix stubs lock bench clean style types contracts walls statements pages

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s  %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

up: $(READY) ## runs everything here, on a database of its own, until Ctrl-C
	@$(BIN)/python -m sandbox.up $(ARGS)

demo: $(READY) ## plays the day of two shops through all of it, and proves what became of each notification
	@$(BIN)/python -m sandbox.demo $(ARGS)

# A hundred processes read what one of them has compiled.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(READY) ## runs the tests; ARGS="tests/unit -k lane" hands on to pytest
	@$(BIN)/python -m pytest $(or $(ARGS),$(ABREAST) $(SUITES))

check: $(READY) ## reads everything: style, types, contracts, walls between modules, SQL
	@$(MAKE) --no-print-directory --keep-going style types contracts walls statements pages

fix: $(READY) ## mends what style can mend by itself
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format
	@$(BIN)/buf format -w

stubs: $(READY) ## generates notifyqueue/v1 from proto/, docs/settings.md, docs/metrics.md and the tables of docs/providers.md
	@$(BIN)/python -m tools.stubs
	@$(BIN)/python -m tools.settings_page
	@$(BIN)/python -m tools.metrics_page
	@$(BIN)/python -m tools.providers_page

lock: $(READY) ## pins what pyproject.toml asks for; ARGS=--upgrade takes the newest
	@$(BIN)/uv --system-certs pip compile pyproject.toml --extra cli --group dev --universal --generate-hashes \
		--no-emit-index-url --no-emit-find-links --quiet $(ARGS) -o requirements.txt
	@$(BIN)/uv --system-certs pip compile pyproject.toml --group services --group sandbox --constraints requirements.txt \
		--universal --generate-hashes --no-emit-index-url --no-emit-find-links --quiet -o requirements-services.txt

bench: $(READY) ## measures; ARGS hands on
	@$(BIN)/python -m benchmarks $(ARGS)

# Where the server's account cannot reach the checkout, the database is outside of it.
clean: ## removes .venv, caches and the local database
	@data=$$($(firstword $(wildcard $(BIN)/python) $(PYTHON)) -c \
		'from pathlib import Path; from sandbox.postgres import folder_for; print(folder_for(Path()))') && \
	if [ -e "$$data/postmaster.pid" ]; then echo "The local database runs: stop 'make up' first, or run and stop it once more."; exit 1; fi && \
	rm -rf "$${data%/postgres}"
	@rm -rf .venv .local .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.txt pyproject.toml tools/set_up.sh
	@PYTHON='$(PYTHON)' sh tools/set_up.sh

style: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(READY)
	@$(BIN)/mypy

contracts: $(READY)
	@$(BIN)/buf lint
	@$(BIN)/buf format -d --exit-code
	@$(BIN)/python -m tools.stubs --check

walls: $(READY)
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.walls

statements: $(READY)
	@$(BIN)/python -m tools.sql_guards

pages: $(READY)
	@$(BIN)/python -m tools.settings_page --check
	@$(BIN)/python -m tools.metrics_page --check
	@$(BIN)/python -m tools.providers_page --check
