# `make demo` and `make test` work on a fresh machine with Python and make: they set up .venv when it is not there yet.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PAGE_TESTS := tests/serve/page
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

# Tests start many processes, which would compile the package anew each time if bytecode were not kept.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-long coverage lint lint-page format bench docs clean

help:  ## Print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/.ready  ## Train on drawn scenes, measure, ask three questions, write a report (minutes)
	$(BIN)/diptych demo --into runs/demo

test: $(VENV)/.ready-dev  ## Run the tests on all cores
	$(BIN)/python -m pytest -n auto --dist worksteal

test-long: $(VENV)/.ready-dev  ## Run the tests that take long: several processes, and a Milvus server (minutes)
	$(BIN)/python -m pytest -n auto --dist worksteal -m long

coverage: $(VENV)/.ready-dev  ## Run the tests and print what they do not reach (no gate)
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report term:skip-covered

lint: $(VENV)/.ready-dev  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory lint-page

lint-page:  ## Check the types of the page's JavaScript modules (needs node)
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory --silent $(PAGE_TESTS)/node_modules/.package-lock.json \
	  && npm run --prefix $(PAGE_TESTS) --silent check; \
	else echo "lint-page: skipped, because npm is not installed"; fi

format: $(VENV)/.ready-dev  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-dev  ## Run the benchmarks and print a table (QUICK=1 for the short form)
	$(BIN)/python benchmarks/run_all.py $(if $(QUICK),--quick)

docs: $(VENV)/.ready-docs  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## Remove what the targets above made, except runs/
	rm -rf $(VENV) site $(PAGE_TESTS)/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

# torch first and by its exact pin: an unpinned torch takes several GB of CUDA packages.
$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) --editable '.[train]'
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(PIP) --editable '.[dev]'
	$(PIP) --no-deps rapidocr  # it would replace the OpenCV of `regions`, which serves it as well, by a smaller one
	@touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(PIP) --editable '.[docs]'
	@touch $@

$(PAGE_TESTS)/node_modules/.package-lock.json: $(PAGE_TESTS)/package-lock.json
	npm ci --prefix $(PAGE_TESTS) --silent --no-audit --no-fund
	@touch $@
