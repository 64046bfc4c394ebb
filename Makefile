# The habits of this project. `make` alone lists them.
.DEFAULT_GOAL := help
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once, about a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(READY) ## make the virtual environment

.PHONY: run
run: $(READY) ## run the server on embedded defaults, 127.0.0.1:50051
	@exec $(BIN)/sage-server serve

.PHONY: test
test: $(READY) ## run the tests (ARGS="-k name" for some)
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

.PHONY: lint
lint: $(READY) generate-check ## formatting, lint, types, import rules, contract rules, generated code
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python scripts/contract.py lint

.PHONY: format
format: $(READY) ## format Python and proto files
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/python scripts/contract.py format

.PHONY: generate
generate: $(READY) ## write generated/ and the sync client from their sources
	@$(BIN)/python scripts/contract.py generate

.PHONY: generate-check
generate-check: $(READY)
	@$(BIN)/python scripts/contract.py check

.PHONY: bench
bench: $(READY) ## ratios against raw limits (ARGS="--help" for options)
	@$(BIN)/python -m bench $(ARGS)

.PHONY: clean
clean: ## remove what the targets above made (not your data)
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
