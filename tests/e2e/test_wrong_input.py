"""Wrong input on a real cluster: a clear reason, nothing lost, everything else goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from demo.kube import KubeError
from tests.e2e.lake import PATIENCE, Lake, change, content, index, load, merge, people, table, warehouse

#: Drops two tables and makes the second one again, which is another table then.
MEDDLE = """
import sys
from pyiceberg.catalog.sql import SqlCatalog
root, dropped, replaced = sys.argv[1:]
catalog = SqlCatalog("skipstone", uri=f"sqlite:///{root}/catalog.db?timeout=60", warehouse=root)
catalog.drop_table(dropped)
schema = catalog.load_table(replaced).schema()
catalog.drop_table(replaced)
catalog.create_table(replaced, schema)
"""
JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Wrong:
    """A job that must fail with ``reason`` and whose message names ``names``."""

    manifest: JsonObject
    reason: str
    names: str
    file: tuple[str, str | bytes] | None = None


CASES = {
    "missing source": Wrong(load("missing-source", "in/nowhere.parquet"), "SourceNotFound", "in/nowhere.parquet"),
    "malformed rows": Wrong(
        load("malformed", "in/bad.csv"), "BadRecords", "bad.csv", ("in/bad.csv", "id,name,city,born\nx,y,z,notadate\n")
    ),
    "unreadable file": Wrong(
        load("unreadable", "in/no.parquet"),
        "SourceUnreadable",
        "no.parquet",
        ("in/no.parquet", b"this is no parquet file at all"),
    ),
    "missing column": Wrong(
        load("no-id", "in/noid.parquet"),
        "SourceColumnMissing",
        "id",
        ("in/noid.parquet", content([{"name": "an", "city": "b"}], "parquet")),
    ),
    "merge key missing in the table": Wrong(
        merge("no-key", "feeds/a.parquet", keys=[{"target": "nope", "source": "id"}]),
        "KeyColumnMissing",
        "nope",
        ("feeds/a.parquet", content([change("U", 1, "a", "b")], "parquet")),
    ),
    "duplicate source keys": Wrong(
        {
            **merge("twice", "feeds/b.parquet"),
            "spec": {k: v for k, v in merge("", "feeds/b.parquet")["spec"].items() if k != "sequenceBy"},
        },
        "DuplicateSourceKeys",
        "the same key in id",
        ("feeds/b.parquet", content([change("U", 1, "a", "b", seq=1), change("U", 1, "c", "d", seq=2)], "parquet")),
    ),
}


#: What is wrong about a Warehouse, the reason that it shows, and what the message names.
WAREHOUSES: dict[str, tuple[JsonObject, str, str]] = {
    "no-claim": ({"storage": {"pvc": {"claimName": "absent"}}}, "ClaimNotFound", "absent"),
    "no-image": ({"spark": {"image": "localhost/absent:1"}}, "ImagePullFailed", "absent"),
    "no-secret": (
        {"credentialsSecretRef": {"name": "absent", "keys": ["SKIPSTONE_CATALOG_TOKEN"]}},
        "ContainerConfigError",
        "absent",
    ),
}
MEDDLED = {"dropped": "TableMissing", "replaced": "TableReplaced"}


@pytest.fixture(scope="module")
def wrong(lakes: dict[str, Lake]) -> Lake:
    """A lake with one good load and everything wrong applied at once; the tests look at what became of it."""
    lake = lakes["e2e-wrong"]
    lake.write("in/good.parquet", people(1, 20))
    lake.apply(warehouse(), table(), load("good", "in/good.parquet"))
    lake.apply(*(table(name, refreshIntervalSeconds=30) for name in MEDDLED))
    lake.apply(*(warehouse(name, **change) for name, (change, _, _) in WAREHOUSES.items()))
    lake.until_complete("lj", "good")
    for case in CASES.values():
        if case.file:
            lake.write(*case.file)
        lake.apply(case.manifest)
    for name in MEDDLED:
        lake.until_condition("tbl", name, "Ready")
    lake.run_pod("meddle", "python", "-c", MEDDLE, lake.mount, *(f"db.{name}" for name in MEDDLED))
    return lake


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_wrong_job_fails_with_a_sentence(wrong: Lake, case: Wrong) -> None:
    manifest = case.manifest
    failed = wrong.until_failed(manifest["kind"], manifest["metadata"]["name"])
    assert failed["reason"] == case.reason
    assert case.names in failed["message"]


def test_nothing_was_lost_by_them(wrong: Lake) -> None:
    assert [row["id"] for row in wrong.rows()] == list(range(1, 21))


def test_an_index_on_a_missing_column_is_not_built(wrong: Lake) -> None:
    wrong.apply(index("by-nothing", ["nothing"]))
    found = wrong.until_condition("si", "by-nothing", "Ready", status="False", reason="ColumnNotFound")
    assert "nothing" in found["message"]


@pytest.mark.parametrize("name", WAREHOUSES)
def test_a_warehouse_that_names_what_is_not_there(wrong: Lake, name: str) -> None:
    _, reason, names = WAREHOUSES[name]

    def explained(found: JsonObject) -> bool:
        conditions = found.get("status", {}).get("conditions", [])
        return any(c["reason"] == reason and names in c["message"] for c in conditions)

    wrong.until("wh", name, explained)
    wrong.kube.run("delete", "wh", name, "--wait=true", "--timeout=300s")


def test_a_job_waits_for_a_missing_table_and_then_runs(wrong: Lake) -> None:
    wrong.write("in/late.parquet", people(1, 3))
    wrong.apply(load("early", "in/late.parquet", table_name="late"))
    wrong.until_condition("lj", "early", "Progressing", status="False", reason="TableNotFound")
    wrong.apply(table("late"))
    assert wrong.until_complete("lj", "early")["status"]["rowsLoaded"] == 3


@pytest.mark.parametrize(("name", "reason"), MEDDLED.items())
def test_a_table_changed_behind_our_back_is_noticed(wrong: Lake, name: str, reason: str) -> None:
    """Nobody has to look at them any more then."""
    wrong.until_condition("tbl", name, "Ready", status="False", reason=reason)
    wrong.apply(table(name, refreshIntervalSeconds=0))


def test_garbage_in_an_annotation_disturbs_nothing(wrong: Lake) -> None:
    wrong.write("in/garbage.parquet", people(100, 102))
    job = load("garbage", "in/garbage.parquet")
    job["metadata"]["annotations"] = {"example.org/garbage": "\u2603 {" * 40_000, "skipstone.dev/report": "{{{"}
    wrong.create(job)
    assert wrong.until_complete("lj", "garbage")["status"]["rowsLoaded"] == 3


def test_the_longest_name_works_and_a_longer_one_is_refused(wrong: Lake) -> None:
    wrong.write("in/long.parquet", people(200, 202))
    wrong.apply(load("n" * 63, "in/long.parquet"))
    assert wrong.until_complete("lj", "n" * 63)["status"]["rowsLoaded"] == 3
    with pytest.raises(KubeError, match="63"):
        wrong.apply(load("n" * 64, "in/long.parquet"))


def test_deleting_resources_in_any_state_ends_clean(wrong: Lake) -> None:
    wrong.write("in/running.parquet", people(900, 950))
    wrong.apply(load("running", "in/running.parquet"))
    wrong.kube.run("delete", "lj,mj,si,tbl,wh", "--all", "--timeout=500s")
    wrong.kube.wait_for(
        "no driver pod is left", lambda: not wrong.kube.items("pods", "spark-role=driver"), seconds=PATIENCE
    )
