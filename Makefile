# Every target that people and CI use. `make help` lists them; `make demo` and `make test` do all set-up themselves.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON_ENV := .venv/bin
STAGE := scripts/stage
# Seconds that `make test` is to take on two cores with everything downloaded and built.
TEST_GOAL := 1200
# Modules of random cases: few of them in `make test`, all of them in `make soak-random`.
RANDOM_MODULES := $(addprefix tests/unit/test_, query_random.py merges_random.py funnel_random.py \
	schedule_histories.py reader_pages.py splicing.py queue.py feeds_random.py sql2merge_random.py \
	long_pages.py unpacking.py rules_alike.py)
# Modules that take long for what they add to the others of tests/unit.
LONG_MODULES := $(addprefix tests/unit/test_, reconcile_crashes.py reconcile_clocks.py merge_memory.py sbom.py \
	demo_replay.py manifest_decodes.py serving_process.py)
# What is run against the oldest and the newest Kubernetes that is pinned, besides the one of the cluster.
VERSION_MODULES := $(addprefix tests/kube/test_, schema_basics.py schema_chart.py schema_examples.py cel_rules.py \
	admission.py accepted_settings.py columns_printed.py runtime_adapter.py planning_server.py)
# What `make test` runs against the server of skipstone local, too; `make test-kube-local` runs all.
LOCAL_MODULES := $(addprefix tests/kube/test_, relists.py launch_moment.py runtime_adapter.py)
VERSIONS := $(patsubst tests/cluster/tools/kubernetes-%,%,$(wildcard tests/cluster/tools/kubernetes-*))
# Programs for a shell. Those of Python have a suffix.
SHELL_SCRIPTS := .ci/run spark_apps/entrypoint.sh $(wildcard findings/*.sh) $(filter-out %.py %.awk %__pycache__,$(wildcard scripts/* tests/docs/standins/*))
# Where `make demo` runs; a bucket and its catalog are pods of a cluster.
CLUSTER ?= $(if $(filter s3,$(STORAGE)),embedded,none)
export CLUSTER
# What `make images`, `make release` and `make soak-release` are told.
export REGISTRY VERSION KEY COSIGN PYTHON_INDEX FROM
# Some images for containers turn off Python's cache of compiled modules. Without it every process that a test starts
# compiles all libraries again, which takes several times longer than the imports themselves.
unexport PYTHONDONTWRITEBYTECODE

include tests/cluster/cluster.mk
include tests/bench/bench.mk

.PHONY: help setup fmt lint .types generate verify docs sbom images release early-warning test test-one coverage .test-kubernetes .test-code test-unit test-local test-kube test-kube-local test-spark test-e2e test-quick test-fresh test-versions soak-query soak-expressions soak-planning-faults soak-sparksql soak-merge soak-merge-forms soak-docs soak-hbase soak-orchestrators soak-debezium soak-maxwell soak-wal2json soak-s3 soak-executors soak-release soak-life soak-random soak-text soak-changes soak-maintain soak-kill soak-kill-local soak-admission soak-local soak-operability soak-planning soak-writers demo demo-down kind-demo kind-demo-down clean

help: ## List the targets by what they are for
	@awk -f scripts/help.awk $(MAKEFILE_LIST)

setup: ## Make the Python environment from the lock file
	@scripts/setup

fmt: setup ## Format the code
	$(PYTHON_ENV)/ruff format .
	$(PYTHON_ENV)/ruff check --fix .

lint: setup ## Style, types, import rules and size budgets
	$(PYTHON_ENV)/ruff format --check .
	$(PYTHON_ENV)/ruff check .
	$(PYTHON_ENV)/shellcheck --severity=warning $(SHELL_SCRIPTS)
	@scripts/beside "$(MAKE) --no-print-directory .types" \
		"$(PYTHON_ENV)/lint-imports && $(PYTHON_ENV)/pytest -q -p no:cacheprovider tests/architecture"
	@$(PYTHON_ENV)/python scripts/callers.py

.types:
	$(PYTHON_ENV)/mypy -p skipstone_core -p skipstone_report -p skipstone_operator -p skipstone -p skipstone_cli -p skipstone_local -p demo -p release -p tests.cluster -m tests.architecture.notebook
	$(PYTHON_ENV)/mypy spark_apps/image/archive_classes.py

generate: setup ## Write CRDs, chart copies and reference pages from the typed models
	$(PYTHON_ENV)/python -m skipstone_operator.resources.publishing.crds .
	$(PYTHON_ENV)/python scripts/reference.py
	$(PYTHON_ENV)/python scripts/rules.py
	$(PYTHON_ENV)/python -m tests.bench.page
	$(PYTHON_ENV)/python scripts/diagrams.py
	$(PYTHON_ENV)/python scripts/writers.py

verify: setup ## Fail when a generated file differs from its models
	$(PYTHON_ENV)/python -m skipstone_operator.resources.publishing.crds --check .
	$(PYTHON_ENV)/python scripts/reference.py --check
	$(PYTHON_ENV)/python scripts/rules.py --check
	$(PYTHON_ENV)/python -m tests.bench.page --check
	$(PYTHON_ENV)/python scripts/diagrams.py --check
	$(PYTHON_ENV)/python scripts/writers.py --check

docs: setup ## Build the site of the documentation into build/site; links are checked
	@.cache/uv/bin/uv sync --frozen --quiet --group docs
	$(PYTHON_ENV)/python scripts/site.py

sbom: setup ## Write build/sbom: what is pinned for the images (CycloneDX)
	$(PYTHON_ENV)/python scripts/sbom.py build/sbom

images: ## Build the operator's and Spark's image, named for REGISTRY (VERSION: that of the chart)
	@python3 -m release images

release: setup ## Push images and chart to REGISTRY, signed with KEY (COSIGN, PYTHON_INDEX); records in build/release
	@python3 -m release publish

early-warning: ## Try the newest releases and pre-releases of what Skipstone uses the internals of
	@scripts/early-warning

# A share of the tests, which changes with the commit: see tests/turns.py. test-kube, test-spark and so on take all.
test: export SKIPSTONE_SHARE := 1
test: ## What must pass for each commit: its share of all tests, those on a cluster included (SKIPSTONE_SHARE=0: all)
	@$(STAGE) --begin build/test-stages.jsonl $(TEST_GOAL)
	@$(STAGE) "python environment" scripts/setup
	@scripts/beside "nice -n 5 $(MAKE) --no-print-directory .test-code" "$(MAKE) --no-print-directory .test-kubernetes" \
		"nice -n 5 $(STAGE) 'unit tests' $(MAKE) --no-print-directory test-unit"
	@$(STAGE) --summary

# The two halves of `make test`. The one with a Kubernetes waits more than it computes, so that the other one, which gets
# what is left of the processors, keeps both of them busy all the time. The half that ends first runs the unit tests.
.test-kubernetes:
	@$(STAGE) "kubernetes programs" $(MAKE) --no-print-directory cluster-tools
	@$(STAGE) "tests against an API server" $(MAKE) --no-print-directory test-kube
	@$(STAGE) "some of them, against the local server" env SKIPSTONE_API=local $(PYTHON_ENV)/pytest -q $(LOCAL_MODULES)
	@$(STAGE) "cluster and images" $(MAKE) --no-print-directory cluster
	@$(STAGE) "end-to-end tests" $(MAKE) --no-print-directory test-e2e
	@$(STAGE) "cluster down" $(MAKE) --no-print-directory cluster-down

.test-code:
	@$(STAGE) "lint, beside those" $(MAKE) --no-print-directory lint
	@$(STAGE) "generated files, beside those" $(MAKE) --no-print-directory verify
	@$(STAGE) "tests with Spark, beside those" $(MAKE) --no-print-directory test-spark
	@$(STAGE) "tests without a cluster, beside those" $(MAKE) --no-print-directory test-local

test-fresh: ## `make test` in a fresh clone of the last commit with empty caches, as CI runs it
	rm -rf .cache/fresh && git clone --quiet . .cache/fresh
	$(MAKE) --no-print-directory -C .cache/fresh test

test-quick: setup ## Lint and most unit tests, for while you work: about two minutes
	@$(STAGE) --begin
	@$(STAGE) "lint" $(MAKE) --no-print-directory lint
	@$(STAGE) "generated files" $(MAKE) --no-print-directory verify
	@$(STAGE) "most unit tests" $(PYTHON_ENV)/pytest -q -n 2 tests/unit $(addprefix --ignore=,$(RANDOM_MODULES) $(LONG_MODULES))
	@$(STAGE) --summary

test-versions: setup cluster-tools ## Schemas, rules, Roles and policies on the oldest and newest Kubernetes that is pinned
	@$(STAGE) --begin
	@$(STAGE) "API servers of $(VERSIONS)" $(CLUSTER_CLI) releases
	@for version in $(VERSIONS); do SKIPSTONE_KUBERNETES=$$version \
		$(STAGE) "Kubernetes $$version" $(PYTHON_ENV)/pytest -q $(VERSION_MODULES) || exit 1; done
	@$(STAGE) --summary

test-one: setup ## One test, or one file of them: make test-one T=tests/unit/test_ids.py::test_name (ARGS="-x --pdb")
	$(if $(T),,$(error T names no test: make test-one T=tests/unit/test_ids.py))
	$(PYTHON_ENV)/pytest -q $(T) $(ARGS)

coverage: setup ## Lines that the unit tests run, in build/coverage/index.html (T: other tests)
	@.cache/uv/bin/uv sync --frozen --quiet --group coverage
	$(PYTHON_ENV)/pytest -q -n 2 $(or $(T),tests/unit) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

test-unit: setup ## Tests of rules, decisions and kernels
	$(PYTHON_ENV)/pytest -q -n 2 tests/unit

test-local: setup ## The main job on this machine without a cluster, and deaths of what runs it
	$(PYTHON_ENV)/pytest -q tests/local

test-kube: setup cluster-tools ## Tests against a real kube-apiserver
	$(PYTHON_ENV)/pytest -q -n 2 --dist loadfile tests/kube

test-kube-local: setup cluster-kubectl ## The same tests, against the server of skipstone local
	SKIPSTONE_API=local $(PYTHON_ENV)/pytest -q -n 2 --dist loadfile tests/kube

test-spark: setup ## Tests with real Spark, Parquet and Iceberg
	$(PYTHON_ENV)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests/spark

test-e2e: setup cluster ## Tests on the cluster with real pods
	$(PYTHON_ENV)/pytest -q -x -n 8 --dist loadfile tests/e2e

soak-query: setup ## Random reads through indexes against DuckDB and Spark (SKIPSTONE_SOAK_CASES, SKIPSTONE_SOAK_SEED)
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s -m soak --log-level ERROR tests/unit/test_query_random.py tests/spark/test_plans_property.py tests/spark/test_plans_covering.py tests/spark/test_plans_covering_random.py tests/spark/test_plans_everywhere.py tests/spark/test_plans_shapes.py tests/spark/test_plans_spark_sql.py tests/spark/test_query_datasource.py tests/spark/test_index_*.py tests/spark/test_reindex_memory.py

soak-expressions: setup ## Random filters and scans as engines send them, judged by PyIceberg and by Iceberg's Java library
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s --log-level ERROR tests/unit/test_filters_random.py tests/unit/test_partition_pruning.py tests/unit/test_scans_indexed.py tests/spark/test_filters_java.py tests/spark/test_partitions_java.py tests/spark/test_scans_random.py

soak-planning-faults: setup ## Reads through planning servers while replicas, catalogs, storage and tables fail or change (SKIPSTONE_SOAK_CASES, SKIPSTONE_SOAK_SEED)
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s --timeout 20000 --log-level ERROR tests/unit/test_planning_faults.py
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s -m soak --timeout 20000 --log-level ERROR tests/spark/test_planning_faults_spark.py

soak-sparksql: setup ## Spark's own SQL tests and TPC-H over indexed tables, results as Spark's (SKIPSTONE_SOAK_SEED); tells in build/soak
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s -m "soak or not soak" --log-level ERROR tests/spark/test_sparksql.py tests/spark/test_tpch.py

soak-merge: setup ## Random merges against a merge of dictionaries, and faults of every commit (SKIPSTONE_SOAK_CASES, SKIPSTONE_SOAK_SEED)
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s -m soak --log-level ERROR tests/unit/test_merges_random.py tests/unit/test_merge_memory.py tests/spark/test_merge_*.py tests/spark/test_inline_*.py tests/spark/test_faults_after_swap.py

soak-merge-forms: setup ## Random MERGE statements and conditions: rows of Spark's MERGE INTO, and no row in a pruned file
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s --log-level ERROR tests/unit/test_pruned_conditions.py tests/unit/test_predicates_arrow.py tests/unit/test_sql2merge_random.py tests/spark/test_merge_forms.py

soak-hbase: setup cluster ## Indexes in a real HBase, with its transports and TLS, random histories, and pods (SKIPSTONE_SOAK_CASES, SKIPSTONE_SOAK_SEED)
	$(PYTHON_ENV)/pytest -q -m "soak or not soak" --log-level ERROR tests/spark/test_hbase_store.py tests/spark/test_hbase_random.py tests/local/test_hbase_index.py
	$(PYTHON_ENV)/pytest -q -x -m soak tests/e2e/test_new_sources.py

soak-debezium: setup ## A random history of a PostgreSQL through Debezium into Iceberg (SKIPSTONE_SOAK_CASES transactions, SKIPSTONE_SOAK_SEED)
	$(PYTHON_ENV)/pytest -q -s -m soak --log-level ERROR tests/spark/test_debezium_postgres.py

soak-maxwell: setup ## A random history of a MariaDB through Maxwell into Iceberg (SKIPSTONE_SOAK_CASES transactions, SKIPSTONE_SOAK_SEED)
	$(PYTHON_ENV)/pytest -q -s -m soak --log-level ERROR tests/spark/test_maxwell_mariadb.py

soak-wal2json: setup ## A random history of a PostgreSQL through wal2json into Iceberg (SKIPSTONE_SOAK_CASES transactions, SKIPSTONE_SOAK_SEED)
	$(PYTHON_ENV)/pytest -q -s -m soak --log-level ERROR tests/spark/test_wal2json_postgres.py

soak-docs: setup cluster ## Pages of the documentation followed as printed, and kind-demo with stand-ins for kind and Docker
	$(PYTHON_ENV)/pytest -q -x -m soak tests/docs/test_soak.py

soak-orchestrators: setup cluster ## The recipes for Airflow and Dagster, each in an environment of its own
	$(PYTHON_ENV)/pytest -q -x -m soak tests/docs/test_orchestrators.py

soak-maintain: setup ## Maintenance of random tables, killed at every write, and beside Flink (SKIPSTONE_SOAK_CHECKPOINTS, SKIPSTONE_SOAK_SEED)
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s --timeout 7200 -m "soak or not soak" --log-level ERROR tests/spark/test_upkeep_*.py tests/spark/test_compaction*.py tests/spark/test_resolve_*.py tests/spark/test_lineage_random.py

soak-s3: setup ## Runs in a bucket while S3 fails, drawn by a seed (SKIPSTONE_SOAK_CASES, SKIPSTONE_SOAK_SEED)
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s --timeout 7200 --log-level ERROR tests/spark/test_s3_faults.py
	$(PYTHON_ENV)/pytest -q -m soak tests/spark/test_s3_memory.py tests/spark/test_s3_uploads.py

soak-executors: setup cluster ## Every kind of run on two executor pods, in a bucket and on a shared claim
	$(PYTHON_ENV)/pytest -q -x -m soak tests/e2e/test_executors.py

soak-release: setup cluster ## A signed release through a registry, helm test, and an upgrade amid jobs (FROM: a commit or tag)
	$(PYTHON_ENV)/pytest -q -x -s -m soak tests/e2e/test_release.py

soak-life: setup cluster ## A schedule of every minute on a table with Inline indexes and maintenance, for half an hour
	SKIPSTONE_LIFE_MINUTES=30 $(PYTHON_ENV)/pytest -q -x tests/e2e/test_long_life.py

soak-random: setup ## All cases of the random unit tests of which `make test` takes a few
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -n 2 $(RANDOM_MODULES)

soak-changes: setup ## Tables as sources: changes between snapshots of random histories, and jobs that die (SKIPSTONE_SOAK_SEED)
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s --timeout 7200 --log-level ERROR tests/spark/test_table_changes.py tests/spark/test_changes_left.py tests/spark/test_table_sources.py tests/unit/test_row_diffs.py

soak-text: setup ## Random Csv and Json, read by the driver and by Spark, cell by cell
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s --timeout 7200 tests/spark/test_text_driver.py

soak-kill: setup cluster-tools ## Kill the operator at every write and moment, against a real kube-apiserver (SKIPSTONE_SOAK_WORKS)
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q tests/unit/test_reconcile_crashes.py tests/unit/test_reconcile_clocks.py tests/kube/test_kill_operator.py

soak-kill-local: setup cluster-kubectl ## The same against the server of `skipstone local`: more than 300 deaths (SKIPSTONE_SOAK_ROUNDS)
	SKIPSTONE_API=local SKIPSTONE_ALL_CASES=1 SKIPSTONE_SOAK_ROUNDS=$${SKIPSTONE_SOAK_ROUNDS:-4} $(PYTHON_ENV)/pytest -q -s tests/kube/test_kill_operator.py

soak-admission: setup cluster-tools ## Random manifests judged by a kube-apiserver and by `skipstone local`
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s --timeout 7200 tests/kube/test_local_admission.py tests/kube/test_local_admission_random.py tests/kube/test_local_admission_schema.py

soak-local: setup ## Kill what runs a lake on this machine at any moment, and install it from an index (SKIPSTONE_SOAK_CASES, SKIPSTONE_SOAK_SEED)
	$(PYTHON_ENV)/pytest -q -m "soak or not soak" --timeout 7200 tests/local tests/unit/test_distribution.py

soak-operability: setup cluster-tools ## Alerts and dashboards in Debian's Prometheus, states as kstatus and Argo CD see them
	$(PYTHON_ENV)/pytest -q -m soak tests/unit/test_alert_rules.py tests/kube/test_scraped.py
	SKIPSTONE_STATE_TOOLS=real $(PYTHON_ENV)/pytest -q tests/unit/test_kstatus.py tests/unit/test_argocd_health.py

soak-planning: setup ## All shapes of queries, and random ones, through a server that plans (SKIPSTONE_SOAK_CASES tables, SKIPSTONE_SOAK_SEED)
	SKIPSTONE_ALL_CASES=1 $(PYTHON_ENV)/pytest -q -s --timeout 7200 --log-level ERROR tests/spark/test_planning_shapes.py tests/spark/test_planning_random.py

soak-writers: setup ## Tables that other engines write, through all steps (ARGS="--record duckdb"); tells in build/soak
	$(PYTHON_ENV)/python -m tests.writers.soak $(ARGS)

demo: ## The main job on real data, on this machine (CLUSTER=embedded: on a Kubernetes; current: on yours; STORAGE=s3)
	@$(STAGE) --begin
	@$(STAGE) "python environment" scripts/setup $(if $(filter none,$(CLUSTER)),demo)
	@if [ "$(CLUSTER)" = embedded ]; then $(STAGE) "cluster and images" $(MAKE) --no-print-directory cluster; fi
	@$(STAGE) "demonstration" $(PYTHON_ENV)/python -m $(if $(filter none,$(CLUSTER)),demo.local,demo)
	@$(STAGE) --summary

kind-demo: ## From nothing to a merged table on kind, with Docker or Podman and without root
	@scripts/kind-demo up

kind-demo-down: ## Remove that cluster and its files
	@scripts/kind-demo down

demo-down: ## Remove what the demonstration made
	@$(PYTHON_ENV)/python -m $(if $(filter none,$(CLUSTER)),demo.local,demo) --down

clean: ## Remove build results (not the caches of tools and packages)
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis
