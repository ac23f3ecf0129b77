# Speed, as ratios against peers in the same run; results go to build/bench. Included by the Makefile.
.PHONY: bench-all bench-application bench-build bench-catchup bench-compaction bench-equality-deletes bench-freshness bench-goals bench-growth bench-hbase bench-joins bench-latency bench-lookup bench-memory bench-merge bench-merge-states bench-operator bench-overhead bench-page bench-peers bench-planning bench-pruning bench-requests bench-server bench-sizing bench-thresholds bench-tpch bench-upsert

bench-all: setup ## All benchmarks on this commit, hours; the same call goes on after a kill (SMALL=1: half an hour; ARGS="--list")
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	@$(PYTHON_ENV)/python -m tests.bench.everything $(if $(SMALL),--small) $(ARGS)

bench-application: setup ## Time of a merge's application from kubectl create to Complete, on a running `make cluster`
	$(PYTHON_ENV)/python -m tests.bench.application $(ARGS)

bench-build: setup ## Building an index beside CREATE TABLE AS SELECT ORDER BY in Spark (ARGS="--scale 10")
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	$(PYTHON_ENV)/python -m tests.bench.build $(ARGS)

bench-catchup: setup ## Time of a reindex of one segment at 40 and at 400 segments
	$(PYTHON_ENV)/python -m tests.bench.catchup $(ARGS)

bench-compaction: setup ## Compaction beside Iceberg's rewrite_data_files, with and without indexes (ARGS="--only bin-pack")
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	$(PYTHON_ENV)/python -m tests.bench.compaction $(ARGS)

bench-equality-deletes: setup ## Resolving equality deletes beside rewrites of the files (ARGS="--rows 1000000 --repeats 1")
	$(PYTHON_ENV)/python -m tests.bench.equality $(ARGS)

bench-freshness: setup ## Seconds from the arrival of a file to its visible row, without a cluster (ARGS="--files 10")
	$(PYTHON_ENV)/python -m tests.bench.freshness $(ARGS)

bench-goals: setup ## What build/bench holds beside all goals, those without a benchmark too
	@$(PYTHON_ENV)/python -m tests.bench.results

bench-growth: setup ## Cost of a commit and size of everything after 10,000 commits; hours (ARGS="--commits 1000 --minutes 20")
	$(PYTHON_ENV)/python -m tests.bench.growth $(ARGS)

bench-hbase: setup ## An index in HBase beside the same index in its table: build, catch-up, bytes, keys of merges (ARGS="--rows 1000000")
	$(PYTHON_ENV)/python -m tests.bench.hbase $(ARGS)

bench-joins: setup ## Joins with a small side through indexes beside plain Iceberg and Delta (ARGS="--scale 1")
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	$(PYTHON_ENV)/python -m tests.bench.joins $(ARGS)

bench-latency: setup ## Merges and lookups on S3 when every request takes 30 ms longer (ARGS="--latency-ms 30 --repeats 3")
	$(PYTHON_ENV)/python -m tests.bench.latency $(ARGS)

bench-lookup: setup ## Lookups through indexes beside plain Iceberg and Delta (ARGS="--scale 1" for a smaller one)
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	$(PYTHON_ENV)/python -m tests.bench.lookup $(ARGS)

bench-memory: setup ## Peak memory of each kind of run by the length of texts that a small file repeats (ARGS="--only merge --no-peers")
	$(PYTHON_ENV)/python -m tests.bench.memory $(ARGS)

bench-merge: setup ## Merges beside Delta and Iceberg (ARGS="--scale 1 --segments 4 --files 40" for smaller ones)
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	$(PYTHON_ENV)/python -m tests.bench.merge $(ARGS)

bench-merge-states: setup ## Merges into many files, after 1,000 merges, and with deletion vectors (ARGS="--only files")
	$(PYTHON_ENV)/python -m tests.bench.merge_states $(ARGS)

bench-operator: setup ## CPU, requests and bytes of the operator's passes beside 5,000 finished jobs and 500 Tables
	$(PYTHON_ENV)/python -m tests.bench.passes $(ARGS)

bench-overhead: setup ## What queries that gain nothing pay in an enabled session (ARGS="--only index --repeats 5")
	$(PYTHON_ENV)/python -m tests.bench.overhead $(ARGS)

bench-page: setup ## Take results of build/bench into docs/results, and write the tables of the documentation from these
	$(PYTHON_ENV)/python -m tests.bench.page --take
	$(PYTHON_ENV)/python scripts/diagrams.py

bench-peers: setup ## Upserts, lookups, lag and space beside engines that have indexes (ARGS="--scale 0.05 --files 8 --only lance hudi")
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	$(PYTHON_ENV)/python -m tests.bench.peers_run $(ARGS)

bench-planning: setup ## Time to plan on tables of 1,000 to 100,000 data files
	$(PYTHON_ENV)/python -m tests.bench.planning $(ARGS)

bench-pruning: setup ## Time of key-range pruning at 10,000 to 1,000,000 files and source keys
	$(PYTHON_ENV)/python -m tests.bench.pruning $(ARGS)

bench-requests: setup ## Requests to S3 beside Iceberg in Spark, through one counting proxy
	$(PYTHON_ENV)/python -m tests.bench.requests $(ARGS)

bench-server: setup ## Spark SQL through a planning server beside client planning, and the server alone (ARGS="--scale 1 --files 80 --segments 8")
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	$(PYTHON_ENV)/python -m tests.bench.server $(ARGS)

bench-sizing: setup ## Bytes of an index for each row, by types of columns and order of rows (ARGS="--rows 10000000")
	$(PYTHON_ENV)/python -m tests.bench.sizing $(ARGS)

bench-thresholds: setup ## What the settings of a session about the cost of reading do (ARGS="--files 12 --repeats 3")
	$(PYTHON_ENV)/python -m tests.bench.thresholds $(ARGS)

bench-tpch: setup ## TPC-H in a session that uses indexes beside plain Iceberg (ARGS="--scale 1 --files 40 --only 17 19")
	@.cache/uv/bin/uv sync --frozen --quiet --group bench
	$(PYTHON_ENV)/python -m tests.bench.tpch $(ARGS)

bench-upsert: setup ## skipstone.open beside PyIceberg's Table.upsert, goal 20x (ARGS="--rows 200000 --keys 2000 --appends 4")
	$(PYTHON_ENV)/python -m tests.bench.upsert $(ARGS)
