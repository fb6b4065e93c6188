# Every target sets up what it needs in .venv; a second run only does what has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := 2.13.0
CSRC := $(shell find csrc -type f)
# Strict for the extension that is developed here; a user's own installation does not set it.
export PLUFG_WERROR ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test sanitize lint bench wheel clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(VENV)/installed  ## create .venv, install everything, build the extension

demo: setup  ## run the demonstration, results in out/demo
	$(BIN)/plufg demo --out out/demo

# One torch thread per worker: two workers with two threads each would only wait for each other.
test: setup  ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests

sanitize: setup  ## run the tests of the compiled operators under AddressSanitizer and UBSan, minutes
	$(BIN)/python .ci/sanitize.py

lint: setup  ## check style, types and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if [ -x $(BIN)/clang-format ]; then \
	  echo "clang-format --dry-run -Werror csrc" && $(BIN)/clang-format --dry-run -Werror $(CSRC); \
	else echo "SKIPPED clang-format: not installed in $(VENV)"; fi

bench: setup  ## run the microbenchmarks
	$(BIN)/python -m pytest bench --benchmark-only --benchmark-max-time=0.5 --benchmark-group-by=func \
	  --benchmark-columns=median,iqr,min,rounds --benchmark-sort=name

wheel: setup  ## build a wheel into dist, audit it and try it out in an environment of its own
	rm -rf dist build/lib.* build/bdist.*
	$(BIN)/python -m pip wheel --no-build-isolation --no-deps --wheel-dir dist .
	$(BIN)/abi3audit --strict dist/*.whl
	$(BIN)/python .ci/try_wheel.py dist/*.whl

clean:  ## remove what was built, except .venv
	rm -rf build dist out *.egg-info plufg_fast/_C.abi3.so $(VENV)/installed
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# torch first and by its exact version: a range would let pip choose a build that brings gigabytes of CUDA libraries.
$(VENV)/torch:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install torch==$(TORCH)
	$(BIN)/python -m pip install "setuptools>=77" wheel
	@touch $@

$(VENV)/installed: $(VENV)/torch pyproject.toml setup.py plufg_fast/version.py $(CSRC)
	$(BIN)/python -m pip install --no-build-isolation -e ".[dev,triton]"
	@touch $@
