# Everything runs in .venv, made here with the Python found as $(PYTHON) (3.11 or later) and nothing else.

PYTHON ?= python3
CORES ?= 2

BIN := .venv/bin
INSTALLED := .venv/.installed
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)
SNAKEFILES := Snakefile workflow
DEMO := results/demo

.PHONY: help install demo test test-slow lint clean

help:
	@echo "make install    set up .venv with the pinned versions of constraints.txt"
	@echo "make demo       run the whole workflow on a simulated genome (minutes on 2 CPU cores)"
	@echo "make test       lint, then all quick tests"
	@echo "make test-slow  the tests that take minutes"
	@echo "make lint       formatting, types, import directions, workflow"
	@echo "make clean      remove caches and the demo's results, not .venv"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make install: needs Python 3.11 or later; name one with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# The report is made anew where anything in it is newer than it; otherwise a second `make demo` does nothing.
demo: $(INSTALLED)
	$(SNAKEMAKE)
	@if [ -f $(DEMO)/report.html ] && [ -z "$$(find $(DEMO)/report -newer $(DEMO)/report.html)" ]; then \
		echo "Nothing to do: $(DEMO) is up to date."; \
	else \
		$(SNAKEMAKE) --report $(DEMO)/report.html; \
	fi
	@echo
	@cat $(DEMO)/report/summary.txt

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check --line-length 100 $(SNAKEFILES)
	$(BIN)/snakemake --lint

test: lint
	$(BIN)/python -m pytest

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

clean:
	rm -rf $(DEMO) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
