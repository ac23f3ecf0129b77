"""Which tests `make test` leaves to other commits, and which it always takes.

Under `SKIPSTONE_SHARE=1`, a commit takes a third of the tests of each SHARED module, and one at least. Of several cases
of a test it takes a half or a quarter. Modules in ROTAS take turns: a commit leaves most of them out. All others have a
part in every `make test`, and tests in ALWAYS, which show what must hold after every commit, have their turn in each.
`make test-kube`, `test-local`, `test-spark`, `test-unit` and `test-e2e` take all tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tests.examples import cases_without_turn, turn, with_turn

#: Folders, and modules of others, with tests that take a while each.
SHARED = ("tests/kube", "tests/local", "tests/spark", "tests/e2e/test_network_policies.py")
#: Tests, and modules with all of theirs, that are in every `make test`, by what they show.
ALWAYS = {
    "a load has the rows of its source, once": (
        "tests/spark/test_load_runs.py::test_a_csv_file_becomes_one_segment",
        "tests/spark/test_load_runs.py::test_two_drivers_of_one_load_held_before_the_swap_leave_the_rows_once",
    ),
    "a merge has the rows of another engine": ("tests/spark/test_merge_matrix.py",),
    "a merge reads no file that no key can touch": (
        "tests/spark/test_merge_runs.py::test_update_delete_and_insert_touch_only_files_with_keys",
        "tests/spark/test_merge_funnel.py",
    ),
    "an index holds each entry once": (
        "tests/spark/test_reindex_runs.py::test_eight_runs_are_merged_into_one_and_nothing_is_lost",
    ),
    "a query through indexes has the rows of a scan": ("tests/spark/test_plans_queries.py",),
    "a run that is killed loses no row and doubles none": (
        "tests/spark/test_merge_killed.py",
        "tests/spark/test_load_runs.py::test_a_driver_killed_right_after_its_commit_is_complete_and_the_next_one_needs_no_jvm",
        "tests/kube/test_kill_operator.py",
        "tests/local/test_kills.py",
    ),
    "a merge in a bucket has the rows of one on a volume": (
        "tests/spark/test_s3_runs.py::test_a_merge_changes_a_table_in_a_bucket",
    ),
    "a table that a commit damages is noticed": ("tests/spark/test_soundness.py",),
    "drivers and strangers do no more than the policies let them": ("tests/kube/test_admission.py",),
}
#: Modules that take turns, each as a whole: a commit takes one list of each rota.
ROTAS: Mapping[str, Sequence[Sequence[str]]] = {
    # Their tests share lakes that take minutes to make
    "lakes of the end-to-end tests": (
        ("tests/e2e/test_merge_faults.py", "tests/e2e/test_new_sources.py", "tests/e2e/test_schedule.py"),
        ("tests/e2e/test_foreign_writer.py", "tests/e2e/test_life_cycle.py", "tests/e2e/test_planning.py"),
        ("tests/e2e/test_long_life.py", "tests/e2e/test_wrong_input.py"),
    ),
    # Each of them is one or two tests that take long
    "random histories with Spark": (
        (
            "tests/spark/test_filters_java.py",
            "tests/spark/test_merge_random.py",
            "tests/spark/test_planning_random.py",
            "tests/spark/test_reindex_memory.py",
            "tests/spark/test_resolve_evolved.py",
            "tests/spark/test_upkeep_random.py",
        ),
        (
            "tests/spark/test_compaction_random.py",
            "tests/spark/test_docs_notebooks.py",
            "tests/spark/test_faults_after_swap.py",
            "tests/spark/test_lineage_random.py",
            "tests/spark/test_planning_faults_spark.py",
        ),
        (
            "tests/spark/test_inline_random.py",
            "tests/spark/test_merge_interleavings.py",
            "tests/spark/test_partitions_java.py",
            "tests/spark/test_resolve_random.py",
            "tests/spark/test_sparksql.py",
            "tests/spark/test_tpch.py",
        ),
    ),
    # Those that take longest, apart from random merges, queries and prunings
    "unit tests": (
        (
            "tests/unit/test_manifest_decodes.py",
            "tests/unit/test_merge_memory.py",
            "tests/unit/test_queue.py",
            "tests/unit/test_reader_pages.py",
            "tests/unit/test_reconcile_clocks.py",
            "tests/unit/test_sbom.py",
            "tests/unit/test_schedule_histories.py",
            "tests/unit/test_splicing.py",
            "tests/unit/test_sql2merge_random.py",
        ),
        (
            "tests/unit/test_demo_replay.py",
            "tests/unit/test_feeds_random.py",
            "tests/unit/test_long_pages.py",
            "tests/unit/test_planning_faults.py",
            "tests/unit/test_reconcile_crashes.py",
            "tests/unit/test_rules_alike.py",
            "tests/unit/test_serving_process.py",
            "tests/unit/test_unpacking.py",
        ),
    ),
}


def without_turn(nodes: Sequence[str]) -> set[int]:
    """The places of cases that a commit leaves to others.

    ``nodes``: all cases in order, as pytest names them: ``tests/spark/test_jars.py::test_name[case]``.
    """
    tests = [node.partition("[")[0] for node in nodes]
    modules = [test.partition("::")[0] for test in tests]
    shared = [place for place, module in enumerate(modules) if is_shared(module)]
    rest = _tests_without_turn({tests[place]: modules[place] for place in shared})
    resting = frozenset(_resting_modules())
    return {
        *(place for place in shared if tests[place] in rest),
        *(shared[number] for number in cases_without_turn(tests[place] for place in shared)),
        *(place for place, module in enumerate(modules) if module in resting),
    }


def is_shared(module: str) -> bool:
    """Whether the tests of the module take turns."""
    return module in SHARED or str(PurePosixPath(module).parent) in SHARED


def _tests_without_turn(tests: Mapping[str, str]) -> set[str]:
    """``tests``: their modules, in the order of both."""
    always = {name for names in ALWAYS.values() for name in names}
    waiting: dict[str, list[str]] = {}
    for test, module in tests.items():
        if not {test, module} & always:
            waiting.setdefault(module, []).append(test)
    return {test for module, found in waiting.items() for test in {*found} - {*with_turn(module, found)}}


def _resting_modules() -> Iterator[str]:
    for name, parts in ROTAS.items():
        now = turn(len(parts), name)
        yield from (module for number, part in enumerate(parts) if number != now for module in part)
