# Development tasks; `make help` lists them.
# Each target makes its own environment first, and again only when setup.cfg
# or constraints.txt change.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: clean demo examples format help lint test test-keras-hub test-matrix test-oldest test-other test-torch

# The Python that .venv is made from: `make test PYTHON=python3.12`.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)

VENV := .venv
OLDEST_VENV := .venv-oldest
TORCH_VENV := .venv-torch
HUB_VENV := .venv-keras-hub
OLDEST := 'keras==3.10.*' 'tensorflow==2.18.*'

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests are mostly tracing, which keeps one core busy.
IN_PARALLEL := -n 2 --dist worksteal --durations=15
OF_NUMBERS := tests/ops tests/layers tests/export tests/peers
PRINT_OTHER := from keras_attention.ops import processor; \
  print(int(not processor.multiplies_with_onednn()))
# --no-build-isolation: the build, too, uses the pinned setuptools.
INSTALL := bin/python -m pip install --quiet --no-build-isolation

demo: $(VENV)/.extras-demo  ## Train a small model, save it, serve it
	$(VENV)/bin/keras-attention demo $(DEMO_ARGS)

examples: $(VENV)/.extras-examples  ## Train a model of words and sounds, and one of text; 20 minutes
	$(VENV)/bin/python examples/word_to_phoneme.py
	$(VENV)/bin/python examples/language_model.py

test: $(VENV)/.extras-demo,examples,serving,test  ## Run tests and doctests; PYTEST_ARGS="..." to choose
	$(VENV)/bin/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS)

test-matrix: $(VENV)/.extras-demo,examples,serving,test  ## Run those that are many alike
	$(VENV)/bin/python -m pytest $(IN_PARALLEL) -m matrix tests $(PYTEST_ARGS)

# On some processors TensorFlow multiplies by oneDNN, on others it does not.
test-other: $(VENV)/.extras-demo,examples,serving,test  ## Run those of numbers with oneDNN off, or on where it is off
	@other=$$($(VENV)/bin/python -c "$(PRINT_OTHER)" 2>/dev/null) && \
	  echo "With TF_ENABLE_ONEDNN_OPTS=$$other:" && \
	  TF_ENABLE_ONEDNN_OPTS=$$other \
	    $(VENV)/bin/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS) $(OF_NUMBERS)

test-oldest: $(OLDEST_VENV)/.extras-demo,examples,serving,test  ## Run them on the oldest supported Keras and TensorFlow
	$(OLDEST_VENV)/bin/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS)

test-torch: $(TORCH_VENV)/.installed  ## Hold the weight converters against PyTorch
	$(TORCH_VENV)/bin/python -m pytest tests/optional/test_torch_parity.py $(PYTEST_ARGS)

test-keras-hub: $(HUB_VENV)/.installed  ## Upgrade models of KerasHub
	$(HUB_VENV)/bin/python -m pytest tests/optional/test_keras_hub.py $(PYTEST_ARGS)

lint: $(VENV)/.extras-lint  ## Check style and types
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

format: $(VENV)/.extras-lint  ## Rewrite the code in the project's style
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

clean:  ## Remove environments, caches and build products
	rm -rf $(VENV) $(OLDEST_VENV) $(TORCH_VENV) $(HUB_VENV) build dist *.egg-info
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## Show this list
	@awk -F ':.*##' '/^[a-z-]+:.*##/ {printf "  %-14s%s\n", $$1, $$2}' Makefile

$(VENV)/.extras-%: setup.cfg constraints.txt $(VENV)/.created
	@echo "Installing keras-attention[$*] into $(VENV) ..."
	@$(VENV)/$(INSTALL) -c constraints.txt -e '.[$*]'
	@touch $@

# Keras and TensorFlow are held back, so the pinned versions do not apply.
$(OLDEST_VENV)/.extras-%: setup.cfg $(OLDEST_VENV)/.created
	@echo "Installing keras-attention[$*] into $(OLDEST_VENV) ..."
	@$(OLDEST_VENV)/$(INSTALL) $(OLDEST) -e '.[$*]'
	@touch $@

# Peers are pinned here: nothing else needs them.
$(TORCH_VENV)/.installed: PEER := torch==2.13.0
$(HUB_VENV)/.installed: PEER := keras-hub==0.32.0
$(TORCH_VENV)/.installed $(HUB_VENV)/.installed: %/.installed: setup.cfg constraints.txt %/.created
	@echo "Installing $(PEER) into $* ..."
	@$*/$(INSTALL) -c constraints.txt -e '.[test]' $(PEER)
	@touch $@

$(addsuffix /.created,$(VENV) $(OLDEST_VENV) $(TORCH_VENV) $(HUB_VENV)):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "keras-attention needs Python 3.10 or newer, and '$(PYTHON)' is" \
	    "not. Try: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; \
	  exit 1; }
	$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet -c constraints.txt pip setuptools
	@touch $@
