# Everything happens inside this folder: packages go to .venv, results to results/.
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
SNAKEMAKE := $(BIN)/snakemake --profile profiles/local
# torch's CPU build where the package index has it and there is no GPU, else the CUDA build.
TORCH ?= $(if $(shell command -v nvidia-smi),cuda,cpu)

.PHONY: help setup demo picture plan test test-all test-environments test-slurm test-slurm-full lint bench bench-scale lock

help: ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: .venv/ready ## install what is needed into .venv

.venv/ready: requirements/lock.txt requirements/torch-cpu.txt requirements/torch-cuda.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "beirgrid needs Python 3.11 or newer; set PYTHON=python3.11, say")'
	$(PYTHON) -m venv .venv || { echo 'Python lacks its venv module: install it (Debian and Ubuntu: python3-venv).'; exit 1; }
	$(BIN)/pip install --quiet --no-deps --require-hashes -r requirements/lock.txt
	$(BIN)/pip install --quiet --no-deps --require-hashes -r requirements/torch-$(TORCH).txt || \
	  { echo "No CPU build of torch in the package index: installing the CUDA build, which runs on a CPU too."; \
	    $(BIN)/pip install --quiet --no-deps --require-hashes -r requirements/torch-cuda.txt; }
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m beirgrid.tools.warm
	touch $@

demo: .venv/ready ## run every kind of stage on the embedded collection and name the report
	@$(SNAKEMAKE) --configfile config/grids/demo.yaml
	@cat results/tables/ndcg@10.md
	@echo "Each machine trains demo-ce itself, so its numbers differ in the third decimal from machine to machine."
	@echo "Report: $$PWD/results/report/index.html"

picture: demo ## take docs/report.png from the demo's report (needs Chromium; CHROMIUM=...)
	$(or $(CHROMIUM),chromium) --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1180,900 \
	  --screenshot=$(CURDIR)/docs/report.png "file://$(CURDIR)/results/report/index.html"

plan: .venv/ready ## say what a grid will take (GRID=config/grids/paper.yaml)
	@$(BIN)/python -m beirgrid plan --configfile $(or $(GRID),config/grids/paper.yaml)

test: .venv/ready ## run the quick tests
	$(BIN)/pytest -m "not environments and not slow" --ignore tests/slurm

test-all: .venv/ready ## run all tests, with ten thousand examples for each property
	HYPOTHESIS_PROFILE=all $(BIN)/pytest -m "not environments" --ignore tests/slurm

test-environments: .venv/ready ## install the pip section of each conda environment afresh, and use it
	$(BIN)/pytest -m environments tests/environments

test-slurm: .venv/ready ## run the small grid through a SLURM cluster on this machine, with the quicker faults (needs root)
	tests/slurm/cluster.sh run $(BIN)/pytest tests/slurm -m "not full"

test-slurm-full: .venv/ready ## the same, with every fault
	tests/slurm/cluster.sh run $(BIN)/pytest tests/slurm

lint: .venv/ready ## check style, types and the workflow
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

bench: .venv/ready ## measure speed against beir, pyserini and faiss, as ratios
	$(BIN)/python bench/bench.py

bench-scale: .venv/ready ## measure memory at a million documents and at ten million vectors
	$(BIN)/python bench/scale.py

lock: ## resolve requirements/lock.in and envs/ anew (needs uv, and the SHA-256 of torch's CPU wheel as CPU_HASH)
	uv pip compile --quiet requirements/lock.in --universal --python-version 3.11 --generate-hashes --no-annotate -o .venv/resolved.txt
	$(PYTHON) requirements/split.py .venv/resolved.txt $(CPU_HASH)
	$(PYTHON) requirements/environments.py
