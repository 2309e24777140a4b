# The door to everything. `make demo` shows the product, `make check test` proves it; nothing has to be installed by hand.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check -q
ARGS   ?=
# Workers of the suite: twice the two cores, because tests on servers wait a third of their time.
JOBS   ?= 4
PACKAGES := cotenant cotenant_lab bench tools tests

# Where an environment forbids compiled files, each of the suite's thousand processes would compile everything anew; one
# that forbids buffers hides what a process lost in them.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

.DEFAULT_GOAL := help
.PHONY: help demo test check audit bench lock docs notebooks clean

help:  ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 20

# --- environments: one lock a use; the tests' environment is the demo's and more -----------------------------------------
$(VENV)/.demo: locks/demo.txt pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; set PYTHON=python3.x"; exit 1; }
	@test -x $(PY) || sh tools/phase.sh "1 of 4, Python environment   " 5 $(PYTHON) -m venv $(VENV)
	@# what is imported is compiled then; to compile all that is installed takes as long as to install it
	@sh tools/phase.sh "2 of 4, packages of the demo " 45 $(PIP) install --no-compile --require-hashes -r locks/demo.txt
	@sh tools/phase.sh "3 of 4, cotenant itself      " 10 $(PIP) install --no-deps --no-build-isolation -e . -e lab
	@sh tools/phase.sh "4 of 4, charts for the pages " 5 $(PY) tools/fetch_plotly.py || echo "small plotly bundle not fetched: Dash's own is used"
	@touch $@

$(VENV)/.test: locks/test.txt $(VENV)/.demo
	@echo "installing what the tests need into $(VENV) ..."
	@$(PIP) install --require-hashes -r locks/test.txt
	@touch $@

$(VENV)-docs/.docs: locks/docs.txt
	@test -x $(VENV)-docs/bin/python || $(PYTHON) -m venv $(VENV)-docs
	@echo "installing what the documentation site needs into $(VENV)-docs ..."
	@$(VENV)-docs/bin/python -m pip --disable-pip-version-check -q install --require-hashes -r locks/docs.txt
	@touch $@

.PHONY: system
system:
	@sh tools/system_packages.sh prometheus chromium openssl containerd runc busybox:busybox-static tc:iproute2 nft:nftables groff:groff-base
	@sh tools/system_packages.sh chromium-headless-shell || echo "browser tests run in the whole Chromium, which takes twice the time"
	@sh tools/system_packages.sh victoria-metrics || echo "VictoriaMetrics will not be read: no package victoria-metrics here"
	@sh tools/system_packages.sh linux.uml:user-mode-linux || echo "cgroup v2 will not be tested: no user-mode-linux here"

demo: $(VENV)/.demo  ## A cluster of 60 nodes and 900 workloads in the browser; no network, no Kubernetes
	@$(VENV)/bin/cotenant demo $(ARGS)

.PHONY: cluster-binaries cluster-up cluster-down
cluster-binaries:  ## Build the Kubernetes programs of the test cluster with Go, once a machine
	@$(PYTHON) -m tests.cluster.binaries
	@$(PYTHON) -m tests.cluster.binaries kubelet containerd containerd-shim-runc-v2 ctr helm versitygw
	@$(PYTHON) -m tests.cluster.binaries dex || echo "LOGINS WITH DEX ARE NOT TESTED: it could not be built (it takes gcc)"

.PHONY: cluster-binaries-next
cluster-binaries-next: $(VENV)/.test  ## Build the programs of the next Kubernetes release and cert-manager too, which `make soak` runs
	@$(PY) -m tests.cluster.binaries kube-apiserver-1.36 kube-controller-manager-1.36 kube-scheduler-1.36 cert-manager

.PHONY: koordinator-binaries
koordinator-binaries: $(VENV)/.test  ## Build Koordinator's own programs, beside which `make soak` tries ours
	@$(PY) -m tests.cluster.binaries koord-manager koord-scheduler koordinator-types
	@test -e /usr/include/perfmon/pfmlib.h || sh tools/system_packages.sh pfmlib.h:libpfm4-dev || true
	@$(PY) -m tests.cluster.binaries koordlet || echo "KOORDLET IS NOT TRIED: it could not be built (it takes gcc and libpfm4-dev)"

.PHONY: thanos-binary
thanos-binary: $(VENV)/.test  ## Build Thanos, which `make soak` and the bench of other people's Prometheus read
	@$(PY) -m tests.cluster.binaries thanos

.PHONY: karpenter-binary
karpenter-binary: $(VENV)/.test  ## Build Karpenter, beside which `bench.rebalance.cluster_size_karpenter` tries which nodes could leave
	@$(PY) -m tests.cluster.binaries karpenter

NODES ?= 20
cluster-up: $(VENV)/.test  ## A real Kubernetes control plane to try things on, with NODES=20 fake nodes
	@$(PY) -m tests.cluster.up up --nodes $(NODES)

cluster-down: $(VENV)/.test  ## End it
	@$(PY) -m tests.cluster.up down

# --- proofs -------------------------------------------------------------------------------------------------------------
# `make test FEATURE=queues` runs the folder of that name alone.
FEATURE ?=
SELECTED = $(if $(FEATURE),$(or $(wildcard tests/$(FEATURE) tests/*/$(FEATURE)),$(error FEATURE=$(FEATURE): no folder of tests has that name)))
PYTEST := $(PY) -m pytest -q -n $(JOBS) --dist loadgroup --durations 20
test: $(VENV)/.test system  ## Tests that need no program to be built (real Prometheus, Chromium, containerd, cgroups): four minutes
	@COTENANT_TEST_WITHOUT_PROGRAMS=1 $(PYTEST) -m "not slow and not cluster and not soak" $(SELECTED) $(ARGS)

.PHONY: test-cluster
test-cluster: $(VENV)/.test system cluster-binaries  ## The rest: on a real control plane, kubelet and containerd, built with Go once
	@$(PYTEST) -m "cluster and not slow and not soak" $(SELECTED) $(ARGS)

.PHONY: test-slow
test-slow: $(VENV)/.test system cluster-binaries  ## Tests of both kinds that take a second or more each
	@$(PYTEST) -m "slow and not soak" $(SELECTED) $(ARGS)

.PHONY: faults
faults: $(VENV)/.test system cluster-binaries  ## Every fault and bad input of the table, and bench/faults.md from what was seen
	@$(PYTEST) -m "not soak" --junitxml build/faults.xml $$($(PY) -m tests.faults.report --tests) $(ARGS) || echo "SOME FAILED: the report says which"
	@$(PY) -m tests.faults.report build/faults.xml

# Wapiti pins old releases of what it uses, so that its lock is not one of the product's: it attacks the loopback alone.
SCANNER := build/scanner
.PHONY: scan-dashboard
scan-dashboard: $(VENV)/.test  ## Attack a running dashboard with Wapiti: ADDRESS='http://127.0.0.1:PORT/?token=...', as `make demo` prints it
	@test -x $(SCANNER)/bin/python || $(PYTHON) -m venv $(SCANNER)
	@$(SCANNER)/bin/python -m pip --disable-pip-version-check -q install --require-hashes -r tools/scanner.txt
	@$(PY) -m tools.scan_dashboard '$(ADDRESS)' --wapiti $(SCANNER)/bin/wapiti

# cosmic-ray starts the tests' own Python: nothing of it is installed beside the product.
MUTATION := build/mutation
.PHONY: mutants
mutants: $(VENV)/.test system  ## Faults planted by cosmic-ray in the modules that guard safety: how many a test notices
	@test -x $(MUTATION)/bin/python || $(PYTHON) -m venv $(MUTATION)
	@$(MUTATION)/bin/python -m pip --disable-pip-version-check -q install --require-hashes -r tools/mutants.txt
	@$(PY) -m bench.platform.mutants $(ARGS)

EMULATOR := qemu-system-x86_64:qemu-system-x86 cpio modprobe:kmod
.PHONY: soak
soak: JOBS := 3
soak: $(VENV)/.test $(VENV)-docs/.docs system cluster-binaries cluster-binaries-next koordinator-binaries thanos-binary  ## What the full form has more: every page in both themes, every fault at every place
	@sh tools/system_packages.sh buildah mmdebstrap || echo "images will not be built and run: no buildah here"
	@sh tools/system_packages.sh $(EMULATOR)
	@$(PYTEST) -m soak $(ARGS)

HOURS ?= 2
.PHONY: soak-hours
soak-hours: $(VENV)/.test system cluster-binaries  ## A live cluster with a fault a minute for HOURS=2: what stayed right and what grew
	@$(PY) -m bench.manager.soak_hours --minutes $$(awk 'BEGIN { print $(HOURS) * 60 }')

.PHONY: test-v2
test-v2: $(VENV)/.test system  ## The node agent on a real cgroup v2 kernel, in a guest
	@$(PY) -m pytest -q -rs -m "not soak" tests/enforcer/test_cgroup_v2.py tests/enforcer/test_strategies_v2.py \
		tests/enforcer/test_best_effort_v2.py $(ARGS)
	@$(PY) -m pytest -q -rs tests/node/test_runtime_on_cgroup_v2.py::test_the_hooks_hold_on_cgroup_v2 $(ARGS)

.PHONY: test-v2-tcg
test-v2-tcg: $(VENV)/.test system  ## The same with several CPUs and pressure, on an emulated machine; downloads a kernel
	@sh tools/system_packages.sh $(EMULATOR)
	@$(PY) -m pytest -q -rs -m soak tests/enforcer/test_cgroup_v2.py tests/node/test_runtime_on_cgroup_v2.py $(ARGS)

check: $(VENV)/.test  ## ruff, mypy over product, benches, tools and tests, import-linter
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy $(foreach p,$(PACKAGES),-p $(p))
	@$(VENV)/bin/lint-imports

audit: $(VENV)/.test  ## Known vulnerabilities in the locked dependencies
	@$(PY) -m tools.audit $(sort $(wildcard locks/*.txt))

bench: $(VENV)/.test system cluster-binaries  ## Every benchmark, then bench/README.md and the README's numbers
	@$(PY) -m bench $(ARGS)

.PHONY: bench-decisions
bench-decisions: $(VENV)/.test  ## Forecasts and decisions against every baseline, on the traces of COTENANT_TRACES
	@$(PY) -m bench $(notdir $(basename $(wildcard bench/*/decisions*.py)))

.PHONY: bench-node
bench-node: $(VENV)/.test system cluster-binaries  ## The node agent: neighbours, burst, footprint, soak, hooks (as root)
	@$(PY) -m bench $(filter-out node_load,$(notdir $(basename $(wildcard bench/enforcer/node_*.py)))) cri_proxy nri_hook

notebooks: $(VENV)/.test  ## The notebooks run anew, with their outputs stored in them
	@$(PY) -m tools.run_notebooks

.PHONY: site
site: $(VENV)-docs/.docs  ## The documentation site, with every link checked, into build/site
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict

docs: $(VENV)/.test  ## What is generated: settings, reasons, commands, objects, REST, benchmark tables, CRDs
	@$(PY) -m bench.report
	@$(VENV)/bin/cotenant config docs > docs/settings.md
	@$(PY) -m tools.write_reasons > docs/reasons.md
	@$(PY) -m tools.write_quantities
	@$(PY) -m tools.write_metrics > docs/metrics.md
	@$(PY) -m tools.write_guards
	@$(PY) -m tools.write_rights > docs/rights.md
	@$(PY) -m tools.write_reading > docs/reading.md
	@$(PY) -m tools.write_crds
	@$(PY) -m tools.write_chart_schema
	@$(PY) -m tools.write_reference
	@$(PY) -m tools.write_phases
	@$(PY) -m tools.write_python_api
	@$(PY) -m tools.write_man

.PHONY: release-dry
release-dry: $(VENV)/.test  ## A release of the last commit but for signatures and upload, into build/release
	@$(PY) -m tools.release

IMAGES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cotenant/images
.PHONY: images
images: $(VENV)/.demo  ## Both container images as OCI archives, with sizes and SBOMs (as root; docs/container-images.md)
	@sh tools/system_packages.sh buildah mmdebstrap
	@$(PY) tools/fetch_plotly.py || echo "small plotly bundle not fetched: Dash's own is used"
	@sh deploy/images/build.sh $(IMAGES)
	@$(PY) -m tools.check_images $(IMAGES)

# --- locks --------------------------------------------------------------------------------------------------------------
COMPILE := $(VENV)/bin/pip-compile --generate-hashes --no-emit-index-url --no-emit-find-links --allow-unsafe --strip-extras --no-header -q
lock: $(VENV)/.test  ## Renew the locks (one per use)
	@$(COMPILE) --upgrade --extra cli --extra scan --extra analytics --extra cluster --extra webhook --extra extender --extra node --extra distributed --extra dashboard --extra mcp --extra test -o locks/test.txt pyproject.toml
	@$(COMPILE) -c locks/test.txt --extra cli --extra scan --extra analytics --extra cluster --extra webhook --extra extender --extra node --extra dashboard --extra build -o locks/demo.txt pyproject.toml
	@$(COMPILE) -c locks/test.txt --extra node -o locks/node.txt pyproject.toml
	@$(COMPILE) -c locks/test.txt --extra docs -o locks/docs.txt pyproject.toml
	@$(COMPILE) --upgrade -o locks/images.txt locks/images.in
	@$(COMPILE) --upgrade -o tools/scanner.txt tools/scanner.in
	@$(COMPILE) --upgrade -o tools/mutants.txt tools/mutants.in

.PHONY: chart
chart: $(VENV)/.test  ## The Helm chart with its manifests, in build/chart
	@$(PY) -m tools.build_chart

clean:  ## Remove the environment and caches
	@rm -rf $(VENV) $(VENV)-docs build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/out
