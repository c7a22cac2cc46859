# `make bind` and `make plan` need nothing but make and Python 3.11+; CONTRIBUTING.md says what `make test` needs. `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= $(shell tests/find-python 3.13 3.12 3.14 3.11)
VENV := .venv
BIN := $(VENV)/bin
COLLECTIONS := build/ansible_collections
FLEET := build/fleet
SITE := build/site
INVENTORY ?=
ARGS ?=
SHARED ?=
TO ?=
FACTS ?= $(if $(INVENTORY),,$(CURDIR)/$(SITE)/facts)
VERSION ?=
REQUEST ?= {"npus": 2, "cpus": 20, "policy": "single-numa-node", "limit": 8}
LAB_MINUTES ?= 0
SOAK_MINUTES ?= 30
SEED ?=
TURN ?=
MUTANTS ?= 200
MACHINES ?= 333
PROPERTIES := tests/unit/plugins/plugin_utils/test_plan_properties.py

ifneq ($(shell locale charmap 2>/dev/null),UTF-8) # Ansible refuses any other
export LC_ALL := C.UTF-8
endif
ifeq ($(INVENTORY),)
export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/build
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PYTHONPATH := $(CURDIR)/build
else # the user's own set-up: ansible.cfg next to the inventory comes first, and collections that are installed are found after this one
ifndef ANSIBLE_CONFIG
export ANSIBLE_CONFIG := $(shell for file in "$$(dirname "$(INVENTORY)x")/ansible.cfg" ~/.ansible.cfg /etc/ansible/ansible.cfg ansible.cfg; do \
  if [ -e "$$file" ]; then realpath -s "$$file"; break; fi; done)
endif
COLLECTIONS_PATH = ANSIBLE_COLLECTIONS_PATH="$(CURDIR)/build:$$($(BIN)/python -c 'from ansible import constants; print(*constants.COLLECTIONS_PATHS, sep=":")')"
endif
# Tests wait for processes: with one worker for each core, a quarter of the time would pass idle.
export WORKERS := $(shell echo $$(($$(nproc) * 3 / 2)))
PYTEST = $(BIN)/python -m pytest -q -p no:xdist -p no:rerunfailures -p tests.forking --forks=$(WORKERS)
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -r $< || \
	{ echo "pip could not install what $< names: its message is above; is the package index of pip's configuration within reach?" >&2; exit 1; }
absolute = $(shell realpath -ms "$(1)")
# $(call path,NAME,PATH): a variable of Ansible, whose name=value ends at a blank
path = -e '{"npu_affinity_$(1)": "$(2)"}'
PLAYBOOK = $(COLLECTIONS_PATH) $(BIN)/ansible-playbook -i "$(or $(INVENTORY),$(FLEET)/inventory.yml)" $(ARGS)

help: ## this list
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 29

$(VENV)/run.stamp: requirements/run.txt
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer is needed and was not found; set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(INSTALL)
	touch $@

$(VENV)/%.stamp: requirements/%.txt $(VENV)/run.stamp
	@$(INSTALL)
	touch $@

$(COLLECTIONS)/npu/affinity:
	mkdir -p $(@D)
	ln -sfn ../../.. $@

setup: $(VENV)/run.stamp | $(COLLECTIONS)/npu/affinity

# What each target needs and no more: a fresh checkout runs its first unit test within seconds.
setup-unit setup-lint setup-docs setup-lab: setup-%: setup $(VENV)/%.stamp

setup-test: setup-unit setup-lint setup-docs setup-lab

fleet: setup ## the simulated hosts below build/fleet, as the last run left them
	@$(BIN)/python -m tests.simulator.generate --fleet tests/simulator/fleet.yml $(FLEET)

bind: setup $(if $(INVENTORY),,fleet) ## bind the fleet (INVENTORY=…; simulated hosts without), ARGS='--check --diff'
	$(PLAYBOOK) playbooks/bind.yml

plan: setup $(if $(INVENTORY),,fleet) ## show what would be bound, and why; touches nothing
	$(PLAYBOOK) playbooks/plan.yml

verify: setup $(if $(INVENTORY),,fleet) ## the plan against the kernel on every host; fails on drift; reports in build/reports
	@rm -rf build/reports
	$(PLAYBOOK) $(call path,reports,$(CURDIR)/build/reports) playbooks/verify.yml

report: setup $(if $(INVENTORY),,fleet) ## one HTML page of the fleet, build/report.html; touches nothing
	$(PLAYBOOK) $(call path,report,$(CURDIR)/build/report.html) $(call path,measures,$(CURDIR)/build/measures) playbooks/report.yml

unbind: setup $(if $(INVENTORY),,fleet) ## restore the state of every host before the first bind
	$(PLAYBOOK) $(if $(INVENTORY),,-e npu_affinity_confirm=yes) playbooks/unbind.yml

history: setup $(if $(INVENTORY),,fleet) ## what was applied to every host: who, when, why, and what changed
	$(PLAYBOOK) playbooks/history.yml

rollback: setup $(if $(INVENTORY),,fleet) ## every host back to an earlier state: TO=-1 (before the last bind), a run or a time
	$(PLAYBOOK) -e '{"npu_affinity_to": "$(TO)"}' playbooks/rollback.yml

collect: setup $(if $(INVENTORY),,fleet) ## an archive of every host, to plan and compare it from afar, in build/archives
	$(PLAYBOOK) $(call path,archives,$(CURDIR)/build/archives) playbooks/collect.yml

inspect: setup ## plan, comparison and page of hosts from archives, ARCHIVE=file or folder (build/archives)
	$(PLAYBOOK) $(call path,archives,$(or $(ARCHIVE),$(CURDIR)/build/archives)) $(call path,report,$(CURDIR)/build/inspect.html) playbooks/inspect.yml

measure: setup ## count what disturbs the workloads, and compare with the counts before; without INVENTORY=… over processes of this machine
ifeq ($(INVENTORY),)
	@$(BIN)/python -m tests.simulator.load build/measures $(ARGS)
else
	$(PLAYBOOK) $(call path,measures,$(CURDIR)/build/measures) playbooks/measure.yml
endif

site: setup ## the facts of 40 simulated hosts in use, below build/site
	@$(BIN)/python -m tests.simulator.site tests/simulator/site.yml $(SITE)

place: setup $(if $(INVENTORY),,site) ## which hosts can take a job: REQUEST='{"npus": 2}' (INVENTORY=… or FACTS=folder; simulated hosts without)
	$(COLLECTIONS_PATH) $(BIN)/ansible-playbook -i "$(or $(INVENTORY),$(SITE)/inventory.yml)" $(if $(FACTS),$(call path,facts,$(call absolute,$(FACTS)))) \
	  $(call path,placement_file,$(CURDIR)/build/placement.json) -e '{"npu_affinity_request": $(REQUEST)}' $(ARGS) playbooks/place.yml

# Parts are targets of this file. Those of one core run side by side, the longest first; then those that keep all cores busy run one after
# another. LIMIT_<part> is in CPU seconds, where 900 are not right. What takes turns in `make test-all` is in tests/rota/proofs.py.
ONE_CORE := style docs types licence
ALL_CORES := unit properties headline
test-core test-all: ONE_CORE := ansible-lint package sanity-changed style docs types licence
test-core test-all: ALL_CORES := unit properties integration
CORE_ONLY := $(if $(SHARED),conformance) lab-core
PARTS = $(filter-out $(UNAFFECTED),$(ONE_CORE) $(ALL_CORES))
LIMIT_integration := 1800
LIMIT_lab-core := 3600
export LOGS := build/logs

run-%:
	@$(BIN)/python -m tests.parts.run $* $(or $(LIMIT_$*),900)

# $(call run,CORES,PARTS)
run = $(if $(2),@$(MAKE) --no-print-directory --keep-going --output-sync=line --jobs=$(1) $(2:%=run-%) || true)

parts: setup-test # without the summary
	@rm -rf $(LOGS) && mkdir -p $(LOGS)
	@echo $(PARTS) > $(LOGS)/parts
	$(call run,$(shell nproc),$(filter $(ONE_CORE),$(PARTS)))
	$(call run,1,$(filter-out $(ONE_CORE),$(PARTS)))

test: parts ## every layer, in minutes; no root: style, types, docs, units, random machines, headline playbooks
test-core: parts ## all playbooks, ansible-lint, sanity, build and install, too; no root
test test-core:
	@$(BIN)/python -m tests.parts.summary $(LOGS)

test-all: ALL_CORES += $(CORE_ONLY)
test-all: UNAFFECTED = $(shell $(BIN)/python -m tests.rota.changes $(ONE_CORE) $(ALL_CORES))
test-all: parts ## what a change can break, and the proofs whose turn it is: virtual machines, containers, other Pythons (root on Debian); SHARED=…
	@status=0; $(BIN)/python -m tests.rota || status=$$?; $(BIN)/python -m tests.parts.summary $(LOGS) && [ $$status = 0 ] && $(BIN)/python -m tests.rota.memory passed

rota: setup-test ## the proofs whose turn it is, or TURN=5, or TURN=all: hours
	@rm -rf $(LOGS) && mkdir -p $(LOGS)
	@status=0; $(BIN)/python -m tests.rota || status=$$?; $(BIN)/python -m tests.parts.summary $(LOGS) && exit $$status

lint: style ansible-lint types docs licence ## style, ansible-lint, types, docs and licence

style: setup-lint ## ruff, oxlint, yamllint, codespell, proselint, changelog fragments
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/oxlint plugins/plugin_utils/_report/page.js
	$(BIN)/yamllint --strict .
	$(BIN)/codespell .
	tests/list-files '*.md' | xargs -0 $(BIN)/proselint check --config .proselintrc.json
	tests/check-prose
	$(BIN)/antsibull-changelog lint

ansible-lint: setup-lint ## roles, playbooks and examples, by the profile production
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/ansible-lint --offline --profile production

types: setup-lint ## mypy, strict, on all plugins; on host code as the oldest Python that mypy knows, too
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 plugins/module_utils plugins/modules

docs docs-site: setup-docs ## check the documentation of plugins and roles; build the site below build/docs
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/run-$@

licence: ## every program says under which licence it is
	tests/check-licence

unit: setup-unit ## unit tests, and properties of all but plans
	$(PYTEST) --ignore=$(PROPERTIES) tests/unit

more-properties: MACHINES := 1000
properties more-properties: setup-unit ## plans of MACHINES=… machines that nobody has built
	HYPOTHESIS_EXAMPLES=$(MACHINES) $(PYTEST) $(PROPERTIES)

fuzz: setup-unit ## what comes from outside, damaged at random: FUZZ=30 damages of each kind of file, answer and document
	FUZZ=$(or $(FUZZ),30) $(PYTEST) tests/unit/plugins/test_damaged_input.py

optimal: setup-lab ## plans of 5,200 machines next to the best that a solver finds; how far large ones are from it (root on Debian installs hwloc)
	tests/install-packages "make optimal" hwloc-distrib=hwloc
	$(PYTEST) -rP tests/optimal

integration: setup-lab ## the playbooks over simulated hosts, as a user runs them
	$(PYTEST) --durations=15 tests/integration

headline: setup-lab ## of integration: what each playbook does, and what each safety property keeps
	$(PYTEST) -m "headline and not long" tests/integration

long: setup-lab ## what unit and integration leave to make test-all
	$(PYTEST) -m long tests/unit tests/integration

molecule: setup-lab ## the Molecule scenarios, or ARGS='duo gpu': simulated hosts, and systemd in containers (root on Debian, installs podman there)
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/run-molecule $(ARGS)

browser: setup-lab ## the report in a headless Chromium (root on Debian installs it)
	tests/browser/setup
	$(BIN)/python -m pytest -q tests/browser

pictures: setup-lab ## take the documentation's pictures of the report again (needs pngquant)
	tests/browser/setup
	$(BIN)/python -m tests.browser.pictures

slurm: setup-lab ## the lines for Slurm, read by slurmctld and slurmd in namespaces (root on Debian, makes a root filesystem once)
	tests/slurm/setup
	$(BIN)/python -m pytest -q -n 0 -o addopts= tests/slurm

launchers: setup-lab ## npu-affinity exec under Open MPI, MPICH and torchrun (root on Debian installs them; the CPU build of PyTorch has 200 MB)
	tests/launchers/setup
	$(BIN)/python -m pytest -q -n 0 -o addopts= tests/launchers

events: setup-lab ## the rulebook in ansible-rulebook: alerts come, hosts are bound or reported (root on Debian installs Java)
	tests/events/setup
	$(BIN)/python -m pytest -q -n 0 -o addopts= tests/events

metrics: setup-lab ## alerts by node exporter, Prometheus and Alertmanager of what a host writes (root on Debian, makes a root filesystem once)
	tests/metrics/setup
	$(BIN)/python -m pytest -q -n 0 -o addopts= tests/metrics

# A test that fails is run once more, which the summary counts: the fault may be the machine's.
LAB = $(BIN)/python -m pytest -v -rsR --no-fold-skipped -o addopts= --reruns=1 --durations=0 --durations-min=5 --lab-minutes=$(LAB_MINUTES) tests/lab

lab-core: setup-lab # the tests of the lab that every run has
	$(BIN)/python -m tests.lab.proofs --run core

lab: setup-lab ## bind virtual machines and query their kernels (root on Debian, installs QEMU there); LAB_SUITE=trixie, LAB_IMAGE=engines or LAB_ARCH=arm64 chooses others, LAB_MINUTES=… limits it
	tests/lab/setup
	$(LAB) -n 2 --maxschedchunk=1 -o cache_dir=build/lab-cache -m "not soak$(if $(filter arm64,$(LAB_ARCH)), and architecture)" $(ARGS)

soak: setup-lab ## SOAK_MINUTES=30 of operations and faults in a random order that SEED=… repeats, on LAB_SUITE=… or LAB_IMAGE=engines; the result goes to docs/evidence.md
	tests/lab/setup
	@rm -rf build/soak
	@status=0; SOAK_MINUTES=$(SOAK_MINUTES) SEED=$(SEED) $(LAB)/test_soak.py --capture=no --reruns=0 -m soak -o cache_dir=build/soak-cache $(ARGS) || status=$$?; \
	  $(BIN)/python -m tests.lab.systems build/soak && exit $$status

measure-lab: setup-lab ## latencies, migrations and remote memory with a noisy neighbour, unbound and bound, in a virtual machine; minutes (root on Debian)
	tests/lab/setup amd64
	LAB_IMAGE=measure PYTHONPATH="$(CURDIR)/build" $(BIN)/python -m tests.lab.measure build/measure-lab

conformance: setup-unit ## every case and capture of SHARED=<dir> through the real filters and parsers
	@[ -n "$(SHARED)" ] || { echo "make conformance SHARED=<directory with cases/ and captures/>" >&2; exit 2; }
	$(PYTEST) tests/conformance --shared="$(call absolute,$(SHARED))"

sanity-changed: ARGS := --changed
sanity sanity-changed: setup-unit ## ansible-test sanity, of which pylint, which is slow, looks at every file or at what changed
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/run-sanity $(ARGS)

matrix: setup-unit ## host code on Python 3.7, the demo fleet on three ansible-cores, with hosts of Python 3.7 to 3.14
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/run-matrix $(ARGS)

mutation: setup-unit ## how many of MUTANTS=200 small defects, drawn by SEED=…, the unit tests find; ARGS=--only-survivors; 20 minutes, apart from make test
	PATH="$(CURDIR)/$(BIN):$$PATH" SEED=$(SEED) MUTANTS=$(MUTANTS) tests/run-mutation $(ARGS)

bench: setup-unit fleet ## print speed and size against baselines of the same run
	$(BIN)/python -m tests.benchmarks.plan $(if $(SHARED),"$(SHARED)")
	$(BIN)/python -m tests.benchmarks.host

compare: setup ## plans of this and other rules on 60 machines: docs/comparison-of-plans.md (runs hwloc-distrib where it is installed, and code of vLLM and SGLang, 380 MB)
	$(BIN)/python -m tests.compare --write

package: setup ## what a release publishes, built twice with the same bytes; its playbooks bind the simulated fleet from a strange place
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/run-package

importer: setup-unit ## Galaxy's importer on the tarball, and the build contexts of the execution and the decision environment
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/run-importer

release: setup-lint ## CHANGELOG.rst from the fragments, which it removes, and the tarball in build/dist; VERSION=1.1.0 or that of galaxy.yml; commit and tag as v1.1.0
	@$(if $(VERSION),sed -i -E 's/^((|        )version: |VERSION = ")[0-9]+[.][0-9.]+/\1$(VERSION)/' \
	  galaxy.yml docs/examples/rollout/{execution,decision}-environment.yml plugins/module_utils/_base/version.py)
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/run-$@
	@rm -rf build/dist && $(BIN)/python -m tests.dist build/dist && cat build/dist/SHA256SUMS

clean: ## remove what the targets above made
	rm -rf build $(VENV) .cache

.PHONY: $(shell sed -nE 's/^([a-z][a-z -]*):.*/\1/p' $(firstword $(MAKEFILE_LIST)))
