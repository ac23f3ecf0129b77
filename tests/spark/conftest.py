"""What tests with Spark share: a warehouse in a directory, and plain Spark with the Iceberg runtime as second engine.

One JVM serves the whole test process: it carries the Iceberg runtime, which our own runs do not use.
"""

from __future__ import annotations

import gc
import os
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from skipstone.runs.workers import WARMING
from skipstone.session import FORCED, LOCAL
from skipstone.tables.catalogs import open_catalog
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef

from tests.s3server import OWNER
from tests.spark import archive
from tests.spark.jars import FOR_S3_SESSIONS, ICEBERG_RUNTIME, jar_paths, s3a_jars
from tests.spark.soundness import Soundness

#: Makes JVMs of tests take little of the processor. Each query runs once or twice: what the second compiler makes of
#: it comes too late. But thousands of queries leave so much code that the 48 MiB of one compiler are soon full: the JVM
#: then sweeps them all the time, and interprets what finds no room. Several threads that collect garbage cost more than
#: they save where each core has a worker of its own.
LEAN = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m -XX:+UseSerialGC"
#: The keys of the tests' S3 server, for the JVM to find whenever it starts: where Amazon's SDK looks for keys, and in
#: variables whose names begin so.
S3_KEYS = f"-Daws.accessKeyId={OWNER.access} -Daws.secretAccessKey={OWNER.secret}"
JVM_KEYS = "SKIPSTONE_TESTS_"
#: Options that every JVM takes, also those of drivers in processes of their own.
JAVA_OPTIONS = "JDK_JAVA_OPTIONS"
#: PySpark leaves the sockets of collected results to the garbage collector.
_OPEN_SOCKETS = "ignore:unclosed <socket:ResourceWarning"
#: Most tests write many small files and wait for the disk after each. How full memory may get is asked first.
MEMORY_FILES, FREE_BYTES = Path("/dev/shm"), 4 << 30
_PREFIX = "skipstone-tests-"
_MADE: list[Path] = []
#: Modules that begin first: two processes share the modules, and neither shall end long after the other.
LONGEST = (
    "test_merge_interleavings.py",
    "test_reindex_memory.py",
    "test_plans_property.py",
    "test_load_runs.py",
    "test_query_datasource.py",
    "test_merge_random.py",
    "test_index_foreign_writers.py",
    "test_faults_after_swap.py",
    "test_merge_matrix.py",
    "test_tables_manifests.py",
    "test_index_lookup.py",
    "test_docs_notebooks.py",
    "test_session_start.py",
    "test_runs_causes.py",
    "test_reindex_killed.py",
    "test_spark_rpc.py",
)
#: Tests after which a table may be broken, and why.
UNSOUND = {
    "test_index_build.py::test_a_file_that_vanishes_during_a_build_is_stale_and_no_failure": "removes old data files",
    "test_index_build.py::test_a_missing_data_file_fails_its_segment_and_the_others_are_built": "removes a data file",
    "test_index_build.py::test_a_segment_that_fails_for_a_passing_reason_is_tried_again": "removes a data file",
    "test_index_damage.py": "damages files of indexes",
    "test_index_lookup.py": "damages files of indexes",
    "test_index_machine.py": "damages files of indexes",
    "test_inline_damage.py": "damages files of indexes",
    "test_plan_verification.py::test_a_replica_that_found_a_fault_counts_logs_and_distrusts": "exchanges a data file",
    "test_plan_verification.py::test_an_exchanged_file_is_found": "exchanges a data file",
    "test_planning_faults_spark.py": "damages tables while they are read",
    "test_plans_covering.py::test_a_damaged_file_costs_time_only": "damages a file of an index",
    "test_plans_driver.py::test_an_index_lost_after_planning_leaves_its_files_to_tasks": "removes files of an index",
    "test_plans_included.py::test_an_index_lost_after_planning_leaves_its_files_to_tasks": "damages files of indexes",
    "test_planning_shapes.py::test_indexes_that_lag_are_damaged_or_gone_cost_files_only": "damages files of indexes",
    "test_plans_property.py": "damages files of indexes",
    "test_plans_states.py::test_an_index_that_is_gone_or_broken_costs_time_only": "damages files of indexes",
    "test_reindex_killed.py": "damages a file of the index, which its history names",
    "test_reindex_runs.py": "damages files of indexes",
    "test_resolve_deletes.py::test_an_index_that_is_gone_or_cut_off_costs_time_only": "removes files of an index",
    "test_runs_observe.py::test_one_broken_table_does_not_hide_the_others": "removes manifests",
    "test_tables_manifests.py::test_codecs_that_iceberg_writes[snappy-snappy]": "PyIceberg reads no Snappy manifests",
    "test_tables_incomplete_metadata.py::test_a_snapshot_of_an_unknown_schema_is_read_in_that_of_the_table": (
        "Java refuses such a snapshot"
    ),
    "test_upkeep_sharing.py": "damages tables, and names files by paths that Java does not read",
    "test_soundness.py": "damages tables to see that the check fails",
}


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory when there is room; workers inherit that from the process that starts them."""
    if config.option.basetemp or "TMPDIR" in os.environ:
        return
    for left in MEMORY_FILES.glob(f"{_PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(_PREFIX)).exists():
            shutil.rmtree(left, ignore_errors=True)
    if has_room(MEMORY_FILES):
        _MADE.append(MEMORY_FILES / f"{_PREFIX}{os.getpid()}")
        _MADE[0].mkdir(mode=0o755, exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MADE[0])


def has_room(folder: Path) -> bool:
    """Whether ``folder`` is a file system in memory with room for the files of all tests."""
    if not folder.is_dir() or not os.access(folder, os.W_OK) or shutil.disk_usage(folder).free < FREE_BYTES:
        return False
    memory = Path("/proc/meminfo")
    available = [line.split()[1] for line in memory.read_text().splitlines() if line.startswith("MemAvailable:")]
    return bool(available) and int(available[0]) * 1024 >= 3 * FREE_BYTES


def pytest_unconfigure() -> None:
    """Give the memory back. Who wants to look at the files of a failed test sets TMPDIR or --basetemp."""
    while _MADE:
        shutil.rmtree(_MADE.pop(), ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest modules, and spare the tests of this folder from warnings about PySpark's own sockets."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(_OPEN_SOCKETS))


@pytest.fixture(autouse=True, scope="module")
def _own_traces() -> Iterator[None]:
    """Leave no sockets to the next module's tests, and the thread's session and its settings as they are in a pod.

    No thread of a run that is over talks to the JVM beside them either.
    """
    yield
    wait_for_workers()
    gc.collect()
    session = SparkSession._instantiatedSession
    if session is not None:
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]
        for key in FORCED:
            if session.conf.isModifiable(key):
                session.conf.set(key, FORCED[key])


def wait_for_workers() -> None:
    """Return when nobody starts Python workers ahead any more, or takes minutes for it."""
    for thread in threading.enumerate():
        if thread.name == WARMING:
            thread.join(300)


def _submit_arguments() -> str:
    """As a pod has them, plus the Iceberg runtime: whoever starts the JVM first starts this one."""
    settings = {**LOCAL, **FORCED, "spark.driver.memory": "2g", "spark.sql.catalogImplementation": "in-memory"}
    # Jars that are named by --jars the JVM sends to itself, encrypted, which takes seconds
    runtime = [*jar_paths("iceberg-runtime", ICEBERG_RUNTIME), *jar_paths("s3-sessions", FOR_S3_SESSIONS), *s3a_jars()]
    settings["spark.driver.extraClassPath"] = ":".join(str(path) for path in (archive.class_path(), *runtime))
    # How long the JVM and Python wait for one another to connect: 15 s are few on a machine that others keep busy
    settings["spark.python.authenticate.socketTimeout"] = "300s"
    # Python workers have them whenever they start, as executors have those of their pod
    settings["spark.executorEnv.AWS_ACCESS_KEY_ID"] = OWNER.access
    settings["spark.executorEnv.AWS_SECRET_ACCESS_KEY"] = OWNER.secret
    options = " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in settings.items())
    return f"{options} pyspark-shell"


@pytest.fixture(scope="session", autouse=True)
def _one_jvm() -> Iterator[None]:
    with one_jvm():
        yield


@contextmanager
def one_jvm() -> Iterator[None]:
    """Whoever starts a JVM in this block starts the one of the tests, which ends with the block."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = _submit_arguments()
    os.environ["SPARK_CONF_DIR"] = str(archive.spark_settings(LEAN))
    os.environ[JAVA_OPTIONS] = f"{os.environ.get(JAVA_OPTIONS, '')} {LEAN} {S3_KEYS}".strip()
    os.environ |= {f"{JVM_KEYS}AWS_ACCESS_KEY_ID": OWNER.access, f"{JVM_KEYS}AWS_SECRET_ACCESS_KEY": OWNER.secret}
    # As the first run that needs Spark sets it: processes of tests have the same environment in any order
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    yield
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.fixture(scope="session", autouse=True)
def _own_decodes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Decoded manifests of tests are kept with the tests' other files."""
    os.environ["SKIPSTONE_CACHE_DIR"] = str(tmp_path_factory.mktemp("decodes"))


@pytest.fixture(scope="session")
def soundness(_one_jvm: None) -> Soundness:
    """What checks tables, with what it has read so far."""
    return Soundness()


@pytest.fixture(autouse=True)
def _sound_tables(
    request: pytest.FixtureRequest, soundness: Soundness, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Fail a test that leaves a table which PyIceberg or Java cannot read in full."""
    yield
    node = request.node
    cases = (node.name, getattr(node, "originalname", ""))
    names = {request.path.name, *(f"{request.path.name}::{case}" for case in cases)}
    own = request.node.funcargs.get("tmp_path")
    if names & UNSOUND.keys():
        soundness.leave_out(tmp_path_factory.getbasetemp())
    else:
        if own is not None:
            soundness.check_folder(own)
        soundness.check_changed(tmp_path_factory.getbasetemp())
    if own is not None:
        soundness.forget(own)


@pytest.fixture
def warehouse(tmp_path: Path) -> WarehouseRef:
    """An empty warehouse with an SQLite catalog."""
    return WarehouseRef(name="wh", root=str(tmp_path), catalog=CatalogRef(type=CatalogType.SQL))


@pytest.fixture
def catalog(warehouse: WarehouseRef) -> Iterator[Catalog]:
    """The catalog of ``warehouse`` with the namespace ``ns``."""
    opened = open_catalog(warehouse)
    opened.create_namespace_if_not_exists("ns")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def spark(_one_jvm: None) -> SparkSession:
    """The session that second-engine reads use."""
    return SparkSession.builder.getOrCreate()
