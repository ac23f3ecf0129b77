"""Others write to an indexed table: status tells what the index lacks, it catches up, and queries never wait for it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from demo.kube import condition
from tests.e2e.lake import Lake, index, table, warehouse
from tests.e2e.watching import Watch, watching

JsonObject = dict[str, Any]
REFRESH = 30
#: Seconds after the refresh interval until an index must have caught up with a foreign commit: a bound against hangs,
#: because other tests take most of the machine. The order of what the watch sees is what counts.
GRACE = 600


def rows_of(segment: int, *names: str) -> list[JsonObject]:
    """Rows named from ``a<segment>`` to ``z<segment>``, so that min/max of every segment cover nearly all names."""
    found = [*(f"{letter}{segment}" for letter in "abcdefghijklmnopqrstuvwxyz"), *names]
    return [{"id": 1000 * segment + i, "name": name, "city": "Oslo", "born": None} for i, name in enumerate(found)]


@pytest.fixture(scope="module")
def foreign(lakes: dict[str, Lake]) -> Iterator[Lake]:
    """A table of three segments that a foreign writer made, and an index in sync with it.

    Afterwards nobody looks at it any more: other tests want the operator at rest.
    """
    lake = lakes["e2e-foreign"]
    lake.apply(warehouse(), table(refreshIntervalSeconds=REFRESH))
    lake.until_condition("tbl", "people", "Ready")
    lake.append(*map(rows_of, (1, 2, 3)))
    lake.apply(index("by-name", ["name"]))
    lake.until("si", "by-name", lambda found: found.get("status", {}).get("synced") == "3/3")
    yield lake
    lake.apply(table(refreshIntervalSeconds=0))


def coverage(watch: Watch) -> list[tuple[str, tuple[int, ...], str]]:
    """What the watch saw of segments, without repetitions: synced/total, ids of the missing ones, and Synced."""
    seen: list[tuple[str, tuple[int, ...], str]] = []
    for sight in watch.seen:
        status, segments = sight.status, sight.status["segments"]
        assert status["synced"] == f"{segments['synced']}/{segments['total']}"
        assert segments["synced"] + segments["missing"] == segments["total"]
        assert len(status["missingSegments"]) == segments["missing"]
        now = (status["synced"], tuple(status["missingSegments"]), condition({"status": status}, "Synced")["status"])
        if seen[-1:] != [now]:
            seen.append(now)
    return seen


def is_missing(status: JsonObject, segment: int) -> bool:
    """Whether the status says everywhere that it shows them that the segment is missing."""
    synced = condition({"status": status}, "Synced")
    return (
        status["missingSegments"] == [segment]
        and status["missing"] == str(segment)
        and synced["reason"] == "SegmentsMissing"
        and str(segment) in synced["message"]
    )


def test_a_watch_sees_the_missing_segment_and_then_the_caught_up_index(foreign: Lake) -> None:
    with watching(foreign.kube, "si", "by-name") as watch:
        old, new = count(watch), count(watch) + 1
        made = foreign.append(rows_of(new))
        deadline = made["time"] + REFRESH + GRACE
        watch.until("the missing segment", lambda status: is_missing(status, made["segment"]), before=deadline)
        watch.until("the caught-up index", lambda status: status["synced"] == f"{new}/{new}", before=deadline)
        assert coverage(watch) == [
            (f"{old}/{old}", (), "True"),
            (f"{old}/{new}", (made["segment"],), "False"),
            (f"{new}/{new}", (), "True"),
        ]


def test_a_query_beside_a_missing_segment_is_right_and_uses_the_index_for_the_others(foreign: Lake) -> None:
    """Suspended, the index stays behind for as long as the query takes."""
    suspend(foreign, "true")
    with watching(foreign.kube, "si", "by-name") as watch:
        old, new = count(watch), count(watch) + 1
        made = foreign.append(rows_of(new, "m2"), engine="spark")
        deadline = made["time"] + REFRESH + GRACE
        watch.until("the missing segment", lambda status: is_missing(status, made["segment"]), before=deadline)
        told = foreign.query("select id, name, city from {table} where name = 'm2' order by id")
        assert watch.seen[-1].status["synced"] == f"{old}/{new}"
        deadline = time.time() + GRACE
        suspend(foreign, "false")
        watch.until("the caught-up index", lambda status: status["synced"] == f"{new}/{new}", before=deadline)
    assert told["rows"] == told["reference"] == [[2012, "m2", "Oslo"], [1000 * new + 26, "m2", "Oslo"]]
    assert explained(told["explain"]) == (f"{old}/{new}", str(made["segment"]))
    assert f"files: {new} total, {new} after min/max, 2 read" in told["explain"]


def test_equality_deletes_of_a_foreign_writer_are_resolved_by_the_policy(foreign: Lake) -> None:
    """The writer is Iceberg's Java library; plain PyIceberg, which refuses equality deletes, reads the rows."""
    before = {row["name"]: row["id"] for row in foreign.rows()}
    upserts = [[{"id": 7, "name": "a1", "city": "Lima"}], [{"id": 8, "name": name} for name in ("a1", "b2", "new")]]
    made = foreign.ask("upsert", "upsert.py", "db.people", *map(json.dumps, upserts))
    assert made == {"deletes": 2}
    foreign.apply(table(refreshIntervalSeconds=REFRESH, maintenance={"resolveEqualityDeletes": {"minFiles": 1}}))
    found = foreign.until("tbl", "people", lambda people: people["status"].get("lastMaintenance"), seconds=GRACE)
    (step,) = found["status"]["lastMaintenance"]
    assert (step["step"], step["reason"]) == ("ResolveEqualityDeletes", "Committed"), step
    assert (step["counts"]["equalityDeletesResolved"], step["counts"]["rowsDeleted"]) == (2, 3), step
    assert {row["name"]: row["id"] for row in foreign.rows()} == before | {"a1": 8, "b2": 8, "new": 8}


def count(watch: Watch) -> int:
    """Segments of the table, all of which the index covers, as the watch saw it last."""
    segments: dict[str, int] = watch.seen[-1].status["segments"]
    assert segments["synced"] == segments["total"]
    return segments["total"]


def suspend(lake: Lake, value: str) -> None:
    """Stop the reindexing of the index, or let it go on."""
    lake.kube.run("patch", "si", "by-name", "--type=merge", "-p", f'{{"spec":{{"suspend":{value}}}}}')


def explained(text: str) -> tuple[str, ...]:
    """Segments that a used index covers, of how many, and those that it misses, as explain says it."""
    assert "read through indexes" in text
    found = re.search(
        r"^ *index people__si_by_name_\w+: used,.*; (\d+/\d+) segments, missing ([\d, ]+)$", text, re.MULTILINE
    )
    return found.groups() if found else ()
