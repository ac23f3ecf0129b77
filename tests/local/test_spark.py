"""Runs that need Spark: in the driver whatever the Warehouse says, and with a sentence where there is no Java."""

from __future__ import annotations

import pytest

from tests.local.lake import CLAIM, ROWS, Lake, index, load, merge, resource, table, wait_for, warehouse

pytestmark = pytest.mark.soak


def csv(name: str) -> dict[str, object]:
    """Of a pattern that the driver leaves to Spark."""
    for_spark = {"timestampFormat": "yyyy-MM-dd HH:mm:ss VV"}
    return load(name, "landing/*.csv", format="Csv", options={"header": "true", **for_spark})


def write_csv(lake: Lake) -> None:
    target = lake.claim / "landing" / "more orders.csv"
    target.parent.mkdir(exist_ok=True)
    target.write_text("id,price\n" + "".join(f"{n},3\n" for n in range(5000, 5100)))


def test_spark_runs_in_the_driver_although_executors_are_asked_for(lake: Lake) -> None:
    lake.write_orders()
    write_csv(lake)
    asked = warehouse(spark={"executor": {"instances": 2}})
    printed = lake.run_once(
        CLAIM, asked, table(), load("a-load", "landing/*.parquet"), merge("b-merge"), csv("c-load"), index()
    )
    assert "6 of 6 objects are as their manifests ask" in printed
    assert lake.rows() == ROWS | dict.fromkeys(range(5000, 5100), 3)


def test_without_java_only_runs_that_need_spark_fail_and_say_what_to_install(lake: Lake) -> None:
    lake.environment = {"JAVA_HOME": "/nonexistent"}
    lake.write_orders()
    write_csv(lake)
    objects = [
        CLAIM,
        warehouse(),
        table(),
        load("a-load", "landing/*.parquet"),
        merge("b-merge"),
        csv("c-load"),
        index(),
    ]
    printed = lake.run_once(*objects, code=1)
    assert (
        "failed: lj/c-load  Failed  JavaMissing: this run needs Spark, and there is no Java in /nonexistent: inst"
        in printed
    )
    assert printed.count("failed: ") == 1
    assert lake.rows() == ROWS
    lake.environment = {}
    lake.run_once(csv("d-load"), code=1)  # the way out; the job before stays as it ended
    assert lake.rows() == ROWS | dict.fromkeys(range(5000, 5100), 3)


def test_a_schedule_merges_what_comes(lake: Lake) -> None:
    lake.write_orders()
    template = merge("x")["spec"] | {"source": {"format": "Parquet", "paths": ["feed"], "consume": "New"}}
    schedule = resource("MergeSchedule", "feed", {"schedule": "* * * * *", "mergeTemplate": {"spec": template}})
    with lake.serving(CLAIM, warehouse(), table(), load("a-load", "landing/*.parquet"), schedule) as process:
        wait_for(lambda: lake.get("LoadJob", "a-load").get("status", {}).get("completionTime"), "the load", process)
        wait_for(lambda: len(lake.metadata_files()) > 2, "the merge", process)
    assert lake.rows() == ROWS
