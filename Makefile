# Everything runs in .venv, made here with the Python found as $(PYTHON) (3.11 or later) and nothing else.

PYTHON ?= python3
CORES ?= 2

BIN := .venv/bin
# Python compiles what is imported, which is a small part of what is installed.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
INSTALLED := .venv/.installed
# Where this is set, as in many containers, every process compiles again what it imports: seconds each.
unexport PYTHONDONTWRITEBYTECODE
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)
SNAKEFILES := Snakefile workflow
RESULTS := from bigbird_dna.config.reading import load_config; print(load_config("workflow/config/demo.yaml").results)

CLUSTER ?= tests/cluster

.PHONY: help install demo docs wheel test test-all test-slow test-cluster test-gpu test-triton benchmark-gpu lint lint-types lint-style clean

help:
	@echo "make install    set up .venv with the pinned versions of constraints.txt"
	@echo "make demo       run the whole workflow on a simulated genome (minutes on 2 CPU cores)"
	@echo "make docs       build the documentation into site/; it opens in a browser without a server"
	@echo "make wheel      a wheel with compiled kernels for this kind of machine, in dist/; needs a C++ compiler"
	@echo "make test       lint, then all quick tests"
	@echo "make test-all   all tests that this machine can run: quick, slow, cluster, GPU kernels; hours"
	@echo "make test-slow  long tests, and quick ones with more settings"
	@echo "make test-cluster  the workflow on a Slurm that it sets up here; needs root and Debian or Ubuntu"
	@echo "make test-gpu   compare an NVIDIA GPU with the CPU: attention, models, training"
	@echo "make test-triton  the attention kernels of an NVIDIA GPU, interpreted on the CPU and compiled; 1 GB"
	@echo "make benchmark-gpu  speed and memory on an NVIDIA GPU, as JSON in results/gpu"
	@echo "make lint       formatting, types, import directions, workflow"
	@echo "make clean      remove caches and the demo's results, not .venv"

install: $(INSTALLED)

# uv chooses the build of PyTorch by the machine: CUDA libraries (some 4 GB) only where there is an NVIDIA driver.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make install: needs Python 3.11 or later; name one with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(INSTALL) uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --torch-backend auto -c constraints.txt torch 2>/dev/null \
		|| echo "make install: PyTorch's own package index cannot be reached; pip installs its default build" >&2
	$(INSTALL) -e '.[dev]'
	touch $@

# Where the results are, the configuration says; its name may hold blanks.
demo: $(INSTALLED)
	$(SNAKEMAKE)
	@results="$$($(BIN)/python -c '$(RESULTS)')"; echo && cat "$$results/report/summary.txt"

# Strict: a page outside the menu, a link or an anchor that leads nowhere are errors. Links to other sites aren't followed.
docs: $(INSTALLED)
	$(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html in a browser."

# For publication, cibuildwheel builds it in images whose C library is old enough for other systems.
wheel: $(INSTALLED)
	BIGBIRD_DNA_BUILD_KERNELS=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .

# Types take as long as the rest.
lint: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs 2 lint-types lint-style

lint-types: $(INSTALLED)
	$(BIN)/mypy

lint-style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/snakefmt --check --line-length 100 $(SNAKEFILES)
	$(BIN)/snakemake --lint

# One thread a process: two that use both cores each wait for one another. One process more than cores: tests often
# wait for a disk, or for processes that start.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $$(($(CORES) + 1)) --dist loadfile --no-loadscope-reorder

# Every target runs, also after a failure in one.
test-all: $(INSTALLED)
	@$(MAKE) --no-print-directory --keep-going test test-slow test-cluster test-triton test-gpu

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

# Without root or apt-get its tests are skipped, and say why. CLUSTER names some of them.
test-cluster: $(INSTALLED)
	$(BIN)/python -m pytest -m cluster -rs $(CLUSTER)

# Triton is no requirement on machines without a GPU: it stays outside .venv. It takes 1 GB.
test-triton: $(INSTALLED)
	@test -d build/triton || $(INSTALL) --no-deps --target build/triton triton==3.9.0
	PYTHONPATH=build/triton $(BIN)/python -m pytest -m triton -rs tests/attention/test_triton.py

# Skipped without a GPU. Most of the time is compilation.
test-gpu: $(INSTALLED)
	$(BIN)/python -m pytest -m gpu -rs -n $(CORES) tests/test_on_gpu.py

benchmark-gpu: $(INSTALLED)
	mkdir -p results/gpu
	$(BIN)/bigbird-dna benchmark attention --device cuda --dtype bfloat16 --length 4096 --layers 12 \
		-o results/gpu/encoder.json
	$(BIN)/bigbird-dna benchmark attention --device cuda --dtype bfloat16 --length 4096 --length 16384 --length 65536 \
		--implementation flex --implementation blocked --implementation sdpa --layers 0 -o results/gpu/attention.json

clean:
	rm -rf results/demo build site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
