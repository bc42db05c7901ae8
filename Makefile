# `make help` lists the targets. All but help and clean first make .venv, and make it again when the
# requirements change.

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := bin/pip install --quiet --disable-pip-version-check --constraint
INSTALL := $(VENV)/$(PIP_INSTALL) requirements/dev.txt
REQUIREMENTS := pyproject.toml requirements/dev.txt

# The tests run on the Spark of requirements/dev.txt. `make prove` also runs the facts of Spark on this one, the
# newest of the oldest line that pyproject.toml allows, in a venv of its own.
OLDER_SPARK := 4.2.1
OLDER_VENV := .venv-spark-$(OLDER_SPARK)

# What builds and tries a release is in a venv of its own.
RELEASE_VENV := .venv-release

# The Python that makes .venv: the first that is new enough. `make PYTHON=...` takes another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$python && break; done)

# The tests run in a process per core, file by file: first those with a Spark session (tests/conftest.py). PARALLEL= runs
# all in one process, to look at the output of a single test (ARGS="-s ...").
PARALLEL ?= --numprocesses=logical --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

# What `make prove` runs: the deep ring, and the properties of both rings with more examples.
RING ?= deep or hypothesis

# How many worlds `make simulate` runs.
SEEDS ?= 2000

# How long `make torture` attacks.
MINUTES ?= 5

# What runs is what is installed in .venv.
unexport PYTHONPATH

# Each of the many processes of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# Spark takes its JVM from JAVA_HOME, and starts its Python workers with PYSPARK_PYTHON.
WITH_JAVA := JAVA_HOME="$$(scripts/find-java)" && export JAVA_HOME && SPARK_CONF_DIR="$(CURDIR)/spark-conf"
WITH_SPARK := $(WITH_JAVA) \
	PYSPARK_PYTHON="$(CURDIR)/$(BIN)/python" PYSPARK_DRIVER_PYTHON="$(CURDIR)/$(BIN)/python"

define make_venv
@test -n "$(PYTHON)" || { echo "make: no Python 3.10 or newer found: install one, or name it with PYTHON=" >&2; exit 1; }
@$(PYTHON) -m venv $(1) || { rm -rf $(1); echo "make: $(PYTHON) cannot make a venv (Debian: apt-get install python3-venv)" >&2; exit 1; }
endef

.PHONY: help test prove quick facts check simulate specification powerloss torture machines mutants demo bench docs dist clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile

test: check $(VENV)/spark-classes.jsa ## Check, then run the default ring of the tests; ARGS="-k word" passes options to pytest
	$(WITH_SPARK) $(BIN)/python -m pytest $(PARALLEL) $(ARGS)

prove: $(VENV)/prove.stamp $(VENV)/spark-classes.jsa $(VENV)/kafka.stamp $(VENV)/delta.stamp $(OLDER_VENV)/stamp ## Run the deep ring of the tests: killed processes, other engines, Kafka, Ceph, the older Spark
	@scripts/install-ceph
	@scripts/install-chromium >/dev/null || true
	$(WITH_SPARK) OLDER_SPARK_PYTHON="$(CURDIR)/$(OLDER_VENV)/bin/python" \
		$(BIN)/python -m pytest -m "$(RING)" --hypothesis-profile=all --timeout=300 $(PARALLEL) $(ARGS)

quick: check ## After a change: check, then run the tests that take milliseconds
	$(BIN)/python -m pytest -m quick $(PARALLEL) $(ARGS)

facts: $(OLDER_VENV)/stamp ## Run the tests of facts about Spark on the oldest supported Spark
	$(WITH_JAVA) $(OLDER_VENV)/bin/python -m pytest -m deep tests/spark_facts $(ARGS)

check: $(VENV)/dev.stamp ## Lint, format, types and layers, without running anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

simulate: $(VENV)/dev.stamp ## Run SEEDS simulated worlds from a random one on; a failing one is printed with how to replay it
	$(BIN)/python -m tests.simulator --more $(SEEDS) $(ARGS)

powerloss: $(VENV)/dev.stamp ## Open the log in the states that a power failure may leave on its disks; ARGS="--every 10" for a part of them
	$(foreach kind,one root journals,$(BIN)/python -m tests.disk --kind $(kind) $(ARGS) &&) true

specification: $(VENV)/prove.stamp ## Explore the specifications, plant faults in them, and follow the journals of simulated worlds
	$(WITH_JAVA) $(BIN)/python -m tests.specification $(ARGS)

torture: $(VENV)/dev.stamp ## Attack real processes and the nodes of a log for MINUTES; a checker says whether they saw what a log may do
	$(BIN)/python -m tests.torture --minutes $(MINUTES) $(ARGS)

machines: $(VENV)/dev.stamp ## Three hosts share GlusterFS, and CephFS, and are cut off and killed; skipped without FUSE and namespaces
	@scripts/install-shared
	$(BIN)/python -m tests.machines $(ARGS)

mutants: $(VENV)/mutants.stamp ## Plant faults in the pure rules, and list those that no test notices; takes hours, ARGS="--sample 300" some of them
	$(BIN)/python scripts/mutants.py $(ARGS)

demo: $(VENV)/demo.stamp ## A year of flights through three nodes: one loses its disk, both queries are killed midway
	@$(WITH_SPARK) $(BIN)/python examples/flights_demo.py $(ARGS)

bench: $(VENV)/prove.stamp ## Measure, and print the table of docs/benchmarks.md
	$(WITH_SPARK) $(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/docs.stamp ## Build the documentation as a site in site/; needs Python 3.11
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

dist: $(RELEASE_VENV)/stamp ## Build a release in dist/, and try it in fresh venvs as its users will; uploads nothing
	JAVA_HOME="$$(scripts/find-java)" && export JAVA_HOME && $(RELEASE_VENV)/bin/python scripts/release.py

clean: ## Remove .venv and everything that was built
	rm -rf $(VENV) .venv-* .jars build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/dev.stamp $(VENV)/prove.stamp $(VENV)/demo.stamp $(VENV)/docs.stamp: $(VENV)/%.stamp: $(REQUIREMENTS) | $(BIN)/python
	$(INSTALL) --editable '.[$*]'
	touch $@

$(VENV)/mutants.stamp: $(VENV)/dev.stamp
	$(INSTALL) --group mutants
	touch $@

# Without it the tests take longer, so a JVM that cannot make it fails nothing.
$(VENV)/spark-classes.jsa: $(VENV)/dev.stamp
	-$(WITH_SPARK) $(BIN)/python -m tests.support.class_archive

# Without it the tests of Kafka are skipped, and say why.
$(VENV)/kafka.stamp: tests/servers/kafka_jars.txt $(VENV)/prove.stamp
	-$(WITH_SPARK) $(BIN)/python -m tests.servers.maven_jars kafka && touch $@

# Without it the tests of archives in Delta tables are skipped, and say why.
$(VENV)/delta.stamp: tests/servers/delta_jars.txt $(VENV)/prove.stamp
	-$(WITH_SPARK) $(BIN)/python -m tests.servers.maven_jars delta && touch $@

$(OLDER_VENV)/stamp: $(REQUIREMENTS)
	$(call make_venv,$(OLDER_VENV))
	sed 's/^pyspark==.*/pyspark==$(OLDER_SPARK)/' requirements/dev.txt > $(OLDER_VENV)/constraints.txt
	$(OLDER_VENV)/$(PIP_INSTALL) $(OLDER_VENV)/constraints.txt pip
	$(OLDER_VENV)/$(PIP_INSTALL) $(OLDER_VENV)/constraints.txt --editable '.[spark]' pytest pytest-timeout
	touch $@

$(RELEASE_VENV)/stamp: $(REQUIREMENTS)
	$(call make_venv,$(RELEASE_VENV))
	$(RELEASE_VENV)/$(PIP_INSTALL) requirements/dev.txt pip
	$(RELEASE_VENV)/$(PIP_INSTALL) requirements/dev.txt --group release
	touch $@

$(BIN)/python:
	$(call make_venv,$(VENV))
	$(INSTALL) pip
