# Everything happens inside this folder: packages go to .venv, results to results/.
# PYTHON=python3.12 names the Python, TORCH=cpu|cuda torch's build, TORCH_INDEX=URL an index that has its CPU build.
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
RUN := .venv/bin/python -m
# With this variable, each of many short processes would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# A process per core, each with whole files of tests, which share what their first test makes. Files start in the order
# of tests/conftest.py.
WORKERS := --numprocesses logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder

.PHONY: help setup setup-dev demo demo-small picture plan test test-slow test-all test-full test-page \
  test-environments test-slurm test-slurm-full \
  lint docs schema bench bench-parts bench-scale gpu gpu-wheels reproduce lock

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: .venv/ready ## install the packages of a run into .venv (TORCH_INDEX=URL names an index with the CPU build of PyTorch)

setup-dev: .venv/ready-dev ## also install the packages of tests, lint, docs and bench

.venv/ready: requirements/lock.txt requirements/torch-cpu.txt requirements/torch-cuda.txt pyproject.toml
	$(PYTHON) requirements/install.py --torch "$(TORCH)" --torch-index "$(TORCH_INDEX)"
	@touch $@

.venv/ready-dev: .venv/ready requirements/dev.txt
	.venv/bin/python requirements/install.py --dev
	.venv/bin/python tests/java_classes.py > .venv/java.log 2>&1 || { tail -5 .venv/java.log; exit 1; }
	@touch $@

demo: .venv/ready ## run the workflow on the embedded collection and print the path of the report
	@$(RUN) beirgrid demo

picture: demo ## take docs/report.png from the demo's report (needs Chromium; CHROMIUM=...)
	$(or $(CHROMIUM),chromium) --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1180,900 \
	  --virtual-time-budget=10000 \
	  --screenshot="$$PWD/docs/report.png" "file://$$PWD/results/grids/demo/report/index.html"

demo-small: .venv/ready ## train the small cross-encoder that the demo ships, and keep it (a quarter of an hour on two cores)
	@$(RUN) beirgrid run config/grids/demo-small.yaml
	rm -rf workflow/resources/demo-small
	mkdir workflow/resources/demo-small
	cp -r results/models/demo-small-made/. workflow/resources/demo-small
	rm workflow/resources/demo-small/checkpoint/.snakemake_timestamp

plan: .venv/ready ## estimate the jobs, hours, downloads and disk of a grid (GRID=config/grids/paper.yaml)
	@$(RUN) beirgrid plan --configfile $(or $(GRID),config/grids/paper.yaml)

test: .venv/ready-dev ## run the quick tests
	$(RUN) pytest $(WORKERS) -m "not slow and not full and not environments" --ignore tests/slurm --ignore tests/browser

test-slow: .venv/ready-dev ## run the tests that `make test` leaves out because they are slow
	$(RUN) pytest $(WORKERS) -m "slow and not full and not environments" --ignore tests/slurm --ignore tests/browser

test-all: test test-slow test-page ## run the quick tests, the slow tests and the tests of the page

# The longest tests run one after the other, because one of them measures time.
test-full: .venv/ready-dev ## run the tests that are too long for CI: ten thousand examples for each property, large collections
	HYPOTHESIS_PROFILE=full $(RUN) pytest $(WORKERS) --timeout 0 tests/property
	$(RUN) pytest --timeout 0 -m full --ignore tests/slurm

test-page: .venv/ready-dev ## open a report in Chromium and use it (Debian: apt install chromium; CHROMIUM=...)
	CHROMIUM="$(CHROMIUM)" $(RUN) pytest -rs -m "not full" tests/browser

test-environments: .venv/ready-dev ## run stages with the packages of each conda environment alone
	$(RUN) pytest -m environments tests/environments

test-slurm: .venv/ready-dev ## run the small grid through a SLURM cluster on this machine, with the quicker faults (needs root)
	tests/slurm/cluster.sh run $(RUN) pytest $(WORKERS) tests/slurm -m "not full"

test-slurm-full: .venv/ready-dev ## run the small grid through a SLURM cluster on this machine, with every fault (needs root)
	tests/slurm/cluster.sh run $(RUN) pytest $(WORKERS) --timeout 0 tests/slurm

lint: .venv/ready-dev ## check style, types, layers and the workflow
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) snakefmt --check Snakefile workflow
	.venv/bin/python -c 'from importlinter.cli import lint_imports_command as lint; lint()'
	$(RUN) snakemake --lint
	.venv/bin/python tests/lines.py

docs: .venv/ready-dev ## build the documentation into site/
	$(RUN) mkdocs build --strict

schema: .venv/ready ## write config.schema.json, by which editors check and complete configfiles
	.venv/bin/python docs/hooks.py

bench: .venv/ready-dev ## measure speed against beir, pyserini and faiss, as ratios (BENCH=small: a small form of each part)
	.venv/bin/python bench/bench.py

bench-parts: .venv/ready-dev ## measure the gain of each part for speed on a CPU: the table of docs/performance.md
	.venv/bin/python bench/parts.py

bench-scale: .venv/ready-dev ## measure memory at a million documents and at ten million vectors
	.venv/bin/python bench/scale.py

# A bare machine has no .venv, and no network to make it: there, gpu takes PYTHON and the folder of wheels.
BARE := $(if $(wildcard .venv/ready),,$(wildcard build/gpu-wheels))
GPU := $(if $(BARE),$(PYTHON),.venv/bin/python) bench/gpu.py

build/gpu-python: $(wildcard build/gpu-wheels/*.whl)
	$(PYTHON) -m pip install --quiet --no-index --no-deps --upgrade --target $@ $^
	@touch $@

# Each part has a process of its own, with a limit of time in which its children end too.
gpu: export PYTHONPATH := $(subst $() ,:,$(addprefix $(CURDIR)/,workflow bench tests $(if $(BARE),build/gpu-python)))
gpu: export TOKENIZERS_PARALLELISM := true
gpu: export BENCH := $(if $(filter cpu,$(DEVICE)),small)
gpu: $(if $(BARE),build/gpu-python,.venv/ready) ## show on a GPU what must hold on one, in nine minutes, and write docs/gpu.md (DEVICE=cpu: a rehearsal)
	@$(if $(BENCH),export CUDA_VISIBLE_DEVICES=;) for part in $(or $(PARTS),parity speed workflow costs); do \
	  timeout --signal INT --kill-after 10 $(if $(BENCH),900,240) $(GPU) $$part; done; $(GPU) page

gpu-wheels: .venv/ready ## collect for `make gpu` what a machine with PyTorch and Python 3.12, but no network, lacks
	rm -rf build/gpu-wheels
	$(RUN) pip download --quiet --only-binary :all: --python-version 3.12 --no-deps --dest build/gpu-wheels \
	  --requirement bench/gpu-wheels.txt
	@test $$(du --summarize --block-size 1M build/gpu-wheels | cut --fields 1) -le 60 || { echo "above 60 MiB"; exit 1; }

reproduce: .venv/ready ## write docs/results.md: run real models on small public sets, in an evening (COLLECTIONS=folder of collections)
	.venv/bin/python bench/results.py $(or $(WORK),build/results) $(COLLECTIONS)

lock: .venv/ready-dev ## resolve the dependencies in pyproject.toml, and envs/, again
	.venv/bin/python requirements/resolve.py $(or $(TORCH_INDEX),https://download.pytorch.org/whl/cpu)
	.venv/bin/python requirements/environments.py
