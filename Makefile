# make lab    set up, check, open the course           make demo   train a language model by PPO, about two minutes
# make test   set up, lint, types, all tests           make soak   what is too long for continuous integration
# make setup  only the virtual environment             make clean  remove what these made (runs/ stays)
# make lint, make types, make tests, make nbval: the parts of make test (nbval: outputs of the notebooks, where there are any)
# make notebooks  run them and write them back         make docs   write docs/ and the marked parts of the READMEs anew
#
# PYTHON=python3.12   the interpreter to build .venv from (default: the first of Python 3.11 or newer found)
# TORCH=cpu | cu126 … the build of torch to ask pytorch.org for (default: what the package index has)

VENV  := .venv
STAMP := $(VENV)/.ready
BIN   := $(VENV)/bin
PY    := $(BIN)/python
RUN   ?= runs/demo
JOBS  ?= 2
TORCH ?=

BOOKS := $(wildcard notebooks/*.ipynb)

export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup lab test lint types tests nbval chromium notebooks docs demo soak clean
.NOTPARALLEL:

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

# Set-up happens when the stamp is older than what it was made from, and not otherwise.
setup: $(STAMP)

$(STAMP): requirements.txt pyproject.toml
	@python="$(PYTHON)"; \
	for candidate in python3.11 python3.12 python3.13 python3 python; do \
		test -n "$$python" && break; \
		$$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && python=$$candidate; \
	done; \
	test -n "$$python" || { echo "no Python >= 3.11 with venv found; install one, or: make setup PYTHON=/path/to/python"; exit 1; }; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$python is older than Python 3.11"; exit 1; }; \
	$(PY) -m pip --version >/dev/null 2>&1 || "$$python" -m venv $(VENV) || exit 1; \
	echo "Setting up $(VENV) with $$($(PY) --version): 2 GB, some minutes, once."
	@$(PY) -m pip install --quiet $(if $(TORCH),--extra-index-url https://download.pytorch.org/whl/$(TORCH)) -r requirements.txt
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

lab: setup
	$(BIN)/ppo-lab check
ifneq ($(BOOKS),)
	$(BIN)/ppo-lab lab
else
	@echo "The notebooks are still to come: here is the four-model loop they take apart."
	@$(MAKE) --no-print-directory demo
endif

# $(call timed,name,command): run it, then say how long it took; fails as the command fails.
define timed
@echo "== $(1): $(2)"; start=$$(date +%s); $(2); code=$$?; \
echo "== $(1): $$(( $$(date +%s) - start )) s, $$(test $$code = 0 && echo passed || echo FAILED)"; exit $$code
endef

# Every part runs, also after one failed.
test: setup
	@$(MAKE) --no-print-directory --keep-going lint types tests $(if $(BOOKS),nbval)

lint: setup
	$(call timed,lint,$(BIN)/ruff check .)

types: setup
	$(call timed,types,$(BIN)/mypy)

tests: setup chromium
	$(call timed,tests,$(PY) -m pytest -q -n $(JOBS) --dist loadscope --durations 10)

# One pass, every output compared: the options of NBVAL in tests/test_notebooks.py.
nbval: setup
	$(call timed,nbval,$(PY) -m pytest --nbval --nbval-current-env --nbval-cell-timeout 120 \
		--nbval-sanitize-with tests/nbval_sanitize.cfg -p no:cacheprovider -q -n $(JOBS) --dist loadscope notebooks)

# The browser tests need it, nothing else does. Installed where we are root (continuous integration, containers).
chromium:
	@for name in chromium chromium-browser google-chrome chrome; do command -v $$name >/dev/null 2>&1 && exit 0; done; \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1; then \
		echo "Installing Chromium for the browser tests."; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null && exit 0; \
	fi; echo "The browser tests will fail without Chromium: sudo apt-get install -y chromium"

notebooks: setup
	$(PY) -m ppo_lab.course.build

docs: setup
	$(PY) -m ppo_lab.course.docs

# A run that is there already is put aside, never removed.
demo: setup
	@test ! -e $(RUN) || { aside=$(RUN)_$$(date +%Y%m%d_%H%M%S); mv $(RUN) $$aside; echo "Put aside: $$aside"; }
	$(BIN)/ppo-lab train rlhf/demo --folder $(RUN)
	$(BIN)/ppo-lab dashboard $(RUN)

# Soak tests are marked `soak`; longer experiments are scripts in benchmarks/soak, each of which exits non-zero on failure.
soak: setup
	$(call timed,soak tests,$(PY) -m pytest -q -m soak; test $$? = 0 -o $$? = 5)
	@for script in $(wildcard benchmarks/soak/*.py); do echo "== $$script"; $(PY) $$script || exit 1; done

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
