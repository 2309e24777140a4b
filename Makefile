# The door to everything. `make demo` shows the product, `make check test` proves it; nothing has to be installed by hand.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check -q
ARGS   ?=
JOBS   ?= 2
PACKAGES := cotenant profiler forecasting recommender scheduler_ext admission enforcer dashboard

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast check audit bench lock docs clean

help:  ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

# --- environments: one lock a use; the tests' environment is the demo's and more -----------------------------------------
$(VENV)/.demo: locks/demo.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; set PYTHON=python3.x"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "installing what the demo needs into $(VENV) ..."
	@$(PIP) install --require-hashes -r locks/demo.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(PY) tools/fetch_plotly.py || echo "small plotly bundle not fetched: Dash's own is used"
	@touch $@

$(VENV)/.test: locks/test.txt $(VENV)/.demo
	@echo "installing what the tests need into $(VENV) ..."
	@$(PIP) install --require-hashes -r locks/test.txt
	@touch $@

.PHONY: system
system:
	@sh tools/system_packages.sh prometheus chromium openssl

demo: $(VENV)/.demo  ## A cluster of 60 nodes and 900 workloads in the browser; no network, no Kubernetes
	@$(VENV)/bin/cotenant demo $(ARGS)

# --- proofs -------------------------------------------------------------------------------------------------------------
test: $(VENV)/.test system  ## Every test (real Prometheus, real Chromium)
	@$(PY) -m pytest -q -n $(JOBS) --dist loadgroup $(ARGS)

test-fast: $(VENV)/.test  ## The inner loop: no server, no browser, under 2 minutes
	@$(PY) -m pytest -q -n $(JOBS) -m "not slow and not browser and not prometheus" $(ARGS)

check: $(VENV)/.test  ## ruff, mypy --strict, import-linter
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy $(foreach p,$(PACKAGES),-p $(p))
	@$(VENV)/bin/lint-imports

audit: $(VENV)/.test  ## Known vulnerabilities in the locked dependencies
	@$(VENV)/bin/pip-audit --require-hashes --disable-pip -r locks/demo.txt

bench: $(VENV)/.test system  ## Every benchmark, then bench/README.md and the README's numbers
	@$(PY) -m bench $(ARGS)

docs: $(VENV)/.test  ## Generated pages: settings, reasons, benchmark tables
	@$(PY) -m bench.report
	@$(VENV)/bin/cotenant settings docs > docs/settings.md
	@$(PY) -m tools.write_reasons > docs/reasons.md

# --- locks --------------------------------------------------------------------------------------------------------------
COMPILE := $(VENV)/bin/pip-compile --generate-hashes --no-emit-index-url --no-emit-find-links --allow-unsafe --strip-extras --no-header -q
lock: $(VENV)/.test  ## Renew the locks (one per use)
	@$(COMPILE) --upgrade --extra cli --extra scan --extra analytics --extra cluster --extra dashboard --extra test -o locks/test.txt pyproject.toml
	@$(COMPILE) -c locks/test.txt --extra cli --extra scan --extra analytics --extra cluster --extra dashboard --extra build -o locks/demo.txt pyproject.toml
	@$(COMPILE) -c locks/test.txt -o locks/node.txt pyproject.toml

clean:  ## Remove the environment and caches
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/out
