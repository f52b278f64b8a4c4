# Two commands matter: `make up` and `make test`. Everything else is a part of them.
#
#   make up STATE=/srv/ironworks PORT=8100 DAGSTER_PORT=3100
#   make up REPLICAS=2    two replicas behind HAProxy (apt-get install haproxy)

PYTHON ?= python3.11
STATE ?= var
PORT ?= 8000
DAGSTER_PORT ?= 3000
REPLICAS ?= 1

VENV := .venv/bin
IRONWORKS := $(VENV)/python -m ironworks
# The fetched model serves every state folder and every run of the tests.
DEMO := var

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help up down status install install-dev demo-model test test-slow check format lock

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

up: install ## Start everything, take the demo model through the lifecycle, ask it something
	@$(IRONWORKS) up --state "$(STATE)" --port $(PORT) --dagster-port $(DAGSTER_PORT) --replicas $(REPLICAS)

down: ## Stop what `make up` started
	@test ! -x $(VENV)/python || $(IRONWORKS) down --state "$(STATE)"

status: ## Show what runs and what it serves
	@test ! -x $(VENV)/python || $(IRONWORKS) status --state "$(STATE)"

install: ## Make the virtual environment from the locked requirements
	@$(PYTHON) requirements/install.py

install-dev: ## The same, with what tests and checks need
	@$(PYTHON) requirements/install.py --dev

demo-model: install ## Fetch and convert the demo model
	@$(IRONWORKS) demo-model --state $(DEMO)

test: install-dev demo-model ## Run the tests but the slow drills; T=tests/unit for a part
ifdef T
	$(VENV)/python -m pytest $(T)
else
	$(VENV)/python -m pytest -n 2 -m "not slow" tests/unit
	$(VENV)/python -m pytest -m "not slow" tests/conformance tests/integration tests/e2e
endif

test-slow: install-dev demo-model ## Run the slow drills: faults under the whole product
	$(VENV)/python -m pytest -m slow

check: install-dev ## Lint, format, types, import rules, locks
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/lint-imports --no-logo
	$(VENV)/python requirements/check.py

format: install-dev ## Put the code into its format
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

lock: install-dev ## Make the locks anew from pyproject.toml (UPGRADE=1 takes newer releases)
	$(VENV)/python requirements/lock.py $(if $(UPGRADE),--upgrade)
