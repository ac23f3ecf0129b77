"""Changes of a feed that cannot be applied: what is left out with them, told, kept and merged again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType
from skipstone.runs.merging.merge import run_dry, run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.sinks import FileSink
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.badrecords import BadRecordPolicy, BadRecordsSpec
from skipstone_core.contract.feeds import Infinity
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    ChangeFormat,
    ConsumePolicy,
    DuplicatesPolicy,
    JobRequest,
    MergeAction,
    MergeClause,
    RunKind,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec

from tests.spark.merge_bed import ALL_IN_SPARK, INSERT, MergeBed, task_of
from tests.spark.test_merge_feeds import PLACEHOLDER, event, flat, lines, maxwell

Row = Mapping[str, Any]
EVENTS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "seen", TimestamptzType()),
    NestedField(4, "essay", StringType()),
)
REDIRECT, DROP = (BadRecordsSpec(policy=BadRecordPolicy(name)) for name in ("Redirect", "Drop"))
T0, T1, T2, FOREVER = (
    *(f"2024-05-0{day}T10:00:00Z" for day in (1, 2, 3)),
    "infinity",
)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


def events(bed: MergeBed) -> None:
    bed.create(EVENTS)
    bed.append([{"id": n, "name": f"n{n}", "seen": None, "essay": f"e{n}"} for n in range(1, 7)])


def row(number: int, name: str, seen: str | None = T0, essay: str = "e") -> dict[str, Any]:
    return {"id": number, "name": name, "seen": seen, "essay": essay}


def request_of(bed: MergeBed, path: str, bad: BadRecordsSpec | None, **source: Any) -> JobRequest:
    spec = SourceSpec(format=SourceFormat.JSON, paths=(path,), change_format=ChangeFormat.DEBEZIUM, **source)
    return bed.request(task_of("", source=spec, when_matched=(), when_not_matched=(), bad_records=bad))


def merge(bed: MergeBed, path: str, bad: BadRecordsSpec | None = REDIRECT, **source: Any) -> JobReport:
    """A merge of Debezium's messages at ``path``; its last report, as users see it."""
    return attempt(bed, request_of(bed, path, bad, **source))


def attempt(bed: MergeBed, request: JobRequest) -> JobReport:
    told = bed.root / f"{request.run_id}.json"
    reporter = Reporter(request, FileSink(told))
    reporter.finish(run_merge(request, reporter, None, bed.limits))
    return JobReport.from_json(told.read_text())


def names(bed: MergeBed) -> dict[int, str]:
    return {one["id"]: one["name"] for one in bed.table().scan().to_arrow().to_pylist()}


def rejected(bed: MergeBed, report: JobReport) -> list[dict[str, Any]]:
    assert report.rejected_path is not None
    folder = bed.root / report.rejected_path
    return [json.loads(line) for path in sorted(folder.glob("part-*")) for line in path.read_text().splitlines()]


def adds_up(report: JobReport) -> dict[str, int]:
    counts = dict(report.counts)
    parts = ("rowsMatching", "rowsInserted", "rowsUnmatched", "rowsSuperseded", "rowsRejected", "rowsWaiting")
    assert counts.get("rowsSource", 0) == sum(counts.get(name, 0) for name in parts)
    return counts


@pytest.mark.parametrize("limits", [USUAL_SHARE, ALL_IN_SPARK], ids=["driver", "spark"])
def test_one_bad_message_never_stops_a_feed(
    bed: MergeBed, limits: DriverShare, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.limits = limits
    monkeypatch.setattr(
        "skipstone.runs.merging.slices.slicing.SLICE_BYTES", 700
    )  # in Spark, one feed is of several slices
    events(bed)
    first = [
        event("u", 1, after=row(1, "before")),
        event("u", 2, after=row(1, "never", FOREVER)),  # 1 stops here
        event("u", 3, after=row(1, "waits", T1)),
        event("u", 4, after=row(2, "fine")),
        event("u", 5, before=row(1, "waits"), after=row(7, "moved")),  # so 7 waits for 1
        event("u", 6, after=row(7, "moved again")),
        event("c", 7, after=row(8, "new", FOREVER)),
        event("d", 8, before=row(3, "n3")),
        event("u", 9, before=row(4, "n4"), after=row(9, "half", FOREVER)),  # 4 stays as long as 9 is missing
        event("u", 10, after=row(4, "no row of 4 before this one")),
    ]
    path = lines(bed, "feed/1.json", *first)
    with pytest.raises(BadData, match=r"'feeds/feed/1.json', line 2: column 'seen': .* infinity.*source.infinity"):
        merge(bed, path, None)
    with pytest.raises(BadData, match=r"10 are|9 are|5 are allowed.*line 2: column 'seen'.*maxCount"):
        merge(bed, path, replace(REDIRECT, max_count=5))
    assert not (bed.root / ".skipstone" / "rejected").exists() or not any(
        (bed.root / ".skipstone" / "rejected").rglob("*.jsonl")
    )

    report = merge(bed, "feeds/feed", consume=ConsumePolicy.NEW, consumer="s")
    assert names(bed) == {1: "before", 2: "fine", 4: "n4", 5: "n5", 6: "n6"}
    counts = adds_up(report)
    assert (counts["rowsSource"], counts["rowsRejected"], counts["rowsWaiting"]) == (12, 4, 5)
    kept = rejected(bed, report)
    assert [(one["file"], one["line"]) for one in kept] == [("feeds/feed/1.json", n) for n in (2, 3, 5, 6, 7, 9, 10)]
    assert [json.loads(one["record"]) for one in kept] == [first[n - 1] for n in (2, 3, 5, 6, 7, 9, 10)]
    assert "column 'seen'" in kept[0]["reason"] and "source.infinity" in kept[0]["reason"]
    assert "'feeds/feed/1.json', line 2" in kept[1]["reason"]
    assert "The first: 'feeds/feed/1.json', line 2: column 'seen'" in report.message
    assert "status.rejectedPath" in report.message

    # Later runs: a whole row or a delete makes what is missing obsolete; what is partial waits.
    second = [
        event("u", 20, after=row(1, "whole", T2)),
        event("u", 21, after=row(8, "partial", T2, PLACEHOLDER)),
        event("u", 22, after=row(2, "fine too", T2, PLACEHOLDER)),
    ]
    lines(bed, "feed/2.json", *second)
    report = merge(bed, "feeds/feed", consume=ConsumePolicy.NEW, consumer="s")
    assert names(bed) == {1: "whole", 2: "fine too", 4: "n4", 5: "n5", 6: "n6"}
    counts = adds_up(report)
    assert (counts["rowsSource"], counts["rowsRejected"], counts["rowsWaiting"]) == (3, 0, 1)
    assert [one["line"] for one in rejected(bed, report)] == [2]

    # A setting repairs them; of row 1 they are older than what the table has.
    report = merge(bed, "feeds/feed", None, infinity=Infinity.MAX, only_rejected=True)
    assert names(bed) == {
        1: "whole", 2: "fine too", 4: "no row of 4 before this one", 5: "n5", 6: "n6", 7: "moved again",
        8: "partial", 9: "half",
    }  # fmt: skip
    adds_up(report)
    report = merge(bed, "feeds/feed", None, infinity=Infinity.MAX, only_rejected=True)
    assert report.counts.get("rowsUpdated", 0) == report.counts.get("rowsInserted", 0) == 0
    assert names(bed)[1] == "whole"


SOON = "soon"


def debezium_avro(path: Path, seen: str) -> None:
    text, number = ["null", "string"], "long"
    fields = [{"name": name, "type": kind} for name, kind in zip(COLUMNS, (number, text, text, text), strict=True)]
    source = dict.fromkeys(("connector", "name", "db", "schema", "table", "snapshot", "sequence"), "string")
    source |= {"lsn": "long", "ts_ms": "long"}
    image = {"type": "record", "name": "Value", "fields": fields}
    schema = {"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", image]}, {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"}, {"name": "ts_ms", "type": "long"},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
            {"name": name, "type": kind} for name, kind in source.items()]}},
    ]}  # fmt: skip
    with path.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(schema), [event("u", n, after=one) for n, one in changes(seen)])


def json_lines(messages: Callable[[int, dict[str, Any]], Any]) -> Callable[[Path, str], None]:
    def write(path: Path, seen: str) -> None:
        path.write_text("".join(json.dumps(messages(n, one)) + "\n" for n, one in changes(seen)))

    return write


def wal2json(number: int, values: dict[str, Any]) -> dict[str, Any]:
    types = dict(zip(COLUMNS, ("bigint", "text", "timestamp with time zone", "text"), strict=True))
    columns = [{"name": name, "type": types[name], "value": value} for name, value in values.items()]
    place = {"schema": "public", "table": "events", "lsn": f"0/{number}"}
    return {"action": "U", **place, "columns": columns, "identity": columns[:1]}


def dms_csv(path: Path, seen: str) -> None:
    rows = [",".join(map(str, ("U", *one.values()))) for _, one in changes(seen)]
    path.write_text("\n".join([",".join(("Op", *COLUMNS)), *rows]) + "\n")


def dms_parquet(path: Path, seen: str) -> None:
    pq.write_table(pa.Table.from_pylist([{"Op": "U", **one} for _, one in changes(seen)]), path)


def changes(seen: str) -> list[tuple[int, dict[str, Any]]]:
    """The second does not fit while ``seen`` is not a moment; the third is of the same row."""
    return [(1, row(1, "early")), (2, row(1, "bad", seen)), (3, row(1, "late")), (4, row(2, "fine"))]


COLUMNS = ("id", "name", "seen", "essay")
WRITERS = {
    "flat": (ChangeFormat.DEBEZIUM_FLAT, SourceFormat.JSON, "1.json", json_lines(lambda n, one: flat("u", n, one)), 2),
    "maxwell": (ChangeFormat.MAXWELL, SourceFormat.JSON, "1.json", json_lines(
        lambda _, one: maxwell("update", {**one, "seen": one["seen"].removesuffix("Z")})), 2),
    "wal2json": (ChangeFormat.WAL2JSON, SourceFormat.JSON, "1.json", json_lines(wal2json), 2),
    "avro": (ChangeFormat.DEBEZIUM, SourceFormat.AVRO, "1.avro", debezium_avro, 2),
    "dms-csv": (ChangeFormat.DMS, SourceFormat.CSV, "20240501-100000123.csv", dms_csv, 3),
    "dms-parquet": (ChangeFormat.DMS, SourceFormat.PARQUET, "20240501-100000123.parquet", dms_parquet, 2),
}  # fmt: skip


@pytest.mark.parametrize("form", WRITERS)
def test_changes_of_every_format_are_left_out_kept_and_merged_once_they_fit(bed: MergeBed, form: str) -> None:
    tool, kind, name, write, line = WRITERS[form]
    events(bed)
    for folder, seen in (("broken", SOON), ("repaired", T2)):
        (bed.root / "feeds" / folder).mkdir(parents=True)
        write(bed.root / "feeds" / folder / name, seen)

    def apply(path: str, bad: BadRecordsSpec | None = REDIRECT, **source: Any) -> JobReport:
        spec = SourceSpec(format=kind, paths=(path,), change_format=tool, **source)
        return bed.merge(task_of("", source=spec, when_matched=(), when_not_matched=(), bad_records=bad))

    with pytest.raises(BadData, match=rf"{name}'(, line|.* near row) {line}?.*column 'seen'|column 'seen'.*near row"):
        apply("feeds/broken", None)
    report = apply("feeds/broken")
    assert {1: "early", 2: "fine"}.items() <= names(bed).items()
    counts = adds_up(report)
    assert (counts["rowsRejected"], counts["rowsWaiting"]) == (1, 1)
    kept = rejected(bed, report)
    assert [(one["file"], one["line"]) for one in kept] == [(f"feeds/broken/{name}", line + n) for n in (0, 1)]
    assert "column 'seen'" in kept[0]["reason"]
    assert "bad" in kept[0]["record"] and SOON in kept[0]["record"]

    merge(bed, lines(bed, "newer.json", event("u", 9, after=row(2, "newer"))))
    report = apply("feeds/repaired", only_rejected=True)
    assert {1: "late", 2: "newer"}.items() <= names(bed).items()
    assert adds_up(report)["rowsSource"] == 2


def test_a_change_whose_row_is_not_known_stops_the_feed_and_names_its_place(bed: MergeBed) -> None:
    events(bed)
    good = event("u", 1, after=row(1, "good"))
    for bad, said in (
        ("{not json", "is not a JSON object"),
        (event("u", 2, after={"id": "x", "name": "b"}), "column 'id'"),
        (event("u", 2, after={"name": "b"}), "key column 'id'"),
        (event("d", 2, before={"id": 0}), "key column 'id'"),
        ({"op": "t", **{name: value for name, value in good.items() if name != "op"}}, "truncate"),
    ):
        text = bad if isinstance(bad, str) else json.dumps(bad)
        bed.text("stuck.json", json.dumps(good) + "\n" + text + "\n")
        with pytest.raises(BadData, match=rf"'feeds/stuck.json', line 2: .*{said}.*badRecords leaves out only changes"):
            merge(bed, "feeds/stuck.json", consume=ConsumePolicy.NEW, consumer="s")
    assert names(bed)[1] == "n1"
    bed.text("stuck.json", json.dumps(good) + "\n")
    merge(bed, "feeds/stuck.json", consume=ConsumePolicy.NEW, consumer="s")
    assert names(bed)[1] == "good"


def test_what_an_earlier_merge_left_out_stops_what_may_leave_out_nothing(bed: MergeBed) -> None:
    """Whole rows go on; a change that would be applied as if nothing was missing is refused."""
    events(bed)
    report = merge(bed, lines(bed, "1.json", event("u", 1, after=row(1, "bad", FOREVER, "new essay"))), DROP)
    assert report.rejected_path is None and "they are dropped" in report.message
    adds_up(report)
    partial = lines(bed, "2.json", event("u", 2, after=row(1, "partial", T1, PLACEHOLDER)))
    with pytest.raises(BadData, match=r"earlier merge left out is missing.*source.onlyRejected"):
        merge(bed, partial, None)
    assert adds_up(merge(bed, partial, DROP))["rowsWaiting"] == 1
    merge(bed, lines(bed, "3.json", event("r", 3, after=row(1, "whole"), snapshot="true")), None)
    assert names(bed)[1] == "whole"
    merge(bed, lines(bed, "4.json", event("u", 4, after=row(1, "on", T1, PLACEHOLDER))), None)
    assert names(bed)[1] == "on"


def test_a_row_left_without_a_value_waits_for_one(bed: MergeBed) -> None:
    events(bed)
    moved = [
        event("d", 1, before=row(1, "n1")),
        event("c", 2, after=row(1, "again", T0, PLACEHOLDER)),
        event("u", 3, after=row(2, "fine")),
    ]
    report = merge(bed, lines(bed, "1.json", *moved))
    assert 1 not in names(bed) and names(bed)[2] == "fine"
    assert adds_up(report)["rowsRejected"] == 1
    assert "column 'essay'" in rejected(bed, report)[0]["reason"]


def test_a_truncate_makes_what_was_left_out_obsolete(bed: MergeBed) -> None:
    events(bed)
    merge(bed, lines(bed, "1.json", event("u", 1, after=row(1, "bad", FOREVER))))
    merge(bed, lines(bed, "2.json", event("t", 2), event("c", 3, after=row(9, "new"))), allow_truncate=True)
    assert names(bed) == {9: "new"}
    merge(bed, lines(bed, "3.json", event("c", 4, after=row(1, "later"))), None)
    merge(bed, "feeds/1.json", None, infinity=Infinity.MAX, only_rejected=True)
    assert names(bed) == {1: "later", 9: "new"}


@pytest.mark.parametrize("limits", [USUAL_SHARE, ALL_IN_SPARK], ids=["driver", "spark"])
def test_a_truncate_is_not_applied_with_what_was_left_out_after_it(bed: MergeBed, limits: DriverShare) -> None:
    bed.limits = limits
    events(bed)
    later = [event("t", 1), event("c", 2, after=row(8, "new")), event("c", 3, after=row(9, "bad", FOREVER))]
    merge(bed, lines(bed, "1.json", *later), allow_truncate=True)
    merge(bed, lines(bed, "2.json", event("c", 4, after=row(7, "newer"))))
    report = merge(bed, "feeds/1.json", None, infinity=Infinity.MAX, only_rejected=True, allow_truncate=True)
    assert names(bed) == {7: "newer", 8: "new", 9: "bad"}
    assert adds_up(report)["rowsInserted"] == 1


def test_a_null_that_the_table_does_not_take_is_left_out(bed: MergeBed) -> None:
    bed.create(Schema(EVENTS.fields[0], NestedField(2, "name", StringType(), required=True), *EVENTS.fields[2:]))
    feed = [event("c", 1, after={**row(1, "x"), "name": None}), event("c", 2, after=row(2, "fine"))]
    report = merge(bed, lines(bed, "1.json", *feed))
    assert names(bed) == {2: "fine"}
    assert "column 'name': it is null" in report.message


def test_a_change_without_a_value_that_the_table_does_not_have_either_is_left_out(bed: MergeBed) -> None:
    """It is found only once the table was looked at."""
    events(bed)
    feed = [
        event("u", 1, after=row(2, "fine")),
        event("u", 2, after=row(50, "no row", T0, PLACEHOLDER)),
        event("u", 3, after=row(51, "bad", FOREVER)),
        event("u", 4, after=row(50, "nor this", T1, PLACEHOLDER)),
    ]
    path = lines(bed, "1.json", *feed)
    with pytest.raises(BadData, match=r"column 'essay'"):
        merge(bed, lines(bed, "2.json", feed[1]), None)
    report = merge(bed, path)
    assert names(bed)[2] == "fine" and 50 not in names(bed)
    counts = adds_up(report)
    assert (counts["rowsRejected"], counts["rowsWaiting"]) == (2, 1)
    assert [one["line"] for one in rejected(bed, report)] == [2, 3, 4]
    assert "column 'essay'" in rejected(bed, report)[0]["reason"]
    merge(bed, lines(bed, "3.json", event("r", 9, after=row(50, "snapshot"), snapshot="true")), None)
    assert names(bed)[50] == "snapshot"


PRICES = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "price", LongType()),
    NestedField(4, "seq", LongType()),
)
SEQUENCE = {"sequence_by": "seq", "target_sequence": "seq"}


def merge_rows(bed: MergeBed, text: str, bad: BadRecordsSpec | None = REDIRECT, **fields: Any) -> JobReport:
    """A merge of rows of Csv, which name all columns of the table."""
    path = bed.text("rows.csv", "id,name,price,seq\n" + text)
    source = SourceSpec(
        format=SourceFormat.CSV, paths=(path,), duplicates=DuplicatesPolicy.ALLOW, options={"header": "true"}
    )
    return bed.merge(task_of("", source=source, bad_records=bad, **fields))


def test_rows_of_other_sources_are_left_out_with_later_ones_of_their_keys(bed: MergeBed) -> None:
    bed.create(PRICES)
    bed.append([{"id": n, "name": f"n{n}", "price": n, "seq": 0} for n in range(1, 6)])
    feed = "1,one,1,2\n1,two,2,4\n1,bad,x,3\n1,three,3,5\n2,fine,2,1\n,broken\n3,bad,x,\n3,waits,3,9\n9,new,9,1\n"
    with pytest.raises(BadData, match=r"3 rows do not fit.*rows.csv.*badRecords"):
        merge_rows(bed, feed, None, **SEQUENCE)
    with pytest.raises(BadData, match=r"3 changes cannot be applied and 3 wait .* 5 are allowed; .*rows.csv.*'price'"):
        merge_rows(bed, feed, replace(REDIRECT, max_count=5), **SEQUENCE)
    report = merge_rows(bed, feed, **SEQUENCE)
    assert names(bed) == {1: "one", 2: "fine", 3: "n3", 4: "n4", 5: "n5", 9: "new"}
    counts = adds_up(report)
    assert (counts["rowsSource"], counts["rowsRejected"], counts["rowsWaiting"]) == (9, 3, 3)
    kept = rejected(bed, report)
    assert sorted(one["record"] for one in kept) == [
        ",broken", "1,bad,x,3", "1,three,3,5", "1,two,2,4", "3,bad,x,", "3,waits,3,9",
    ]  # fmt: skip
    assert {one["file"] for one in kept} == {"feeds/rows.csv"}

    # What was repaired never takes the place of what is newer.
    merge_rows(bed, "3,newest,3,10\n", **SEQUENCE)
    repaired = "".join(f"{one['record'].replace('x', '7')}\n" for one in kept if one["record"][0] in "13")
    merge_rows(bed, repaired, **SEQUENCE)
    assert names(bed) == {1: "three", 2: "fine", 3: "newest", 4: "n4", 5: "n5", 9: "new"}


def test_of_a_key_that_should_stand_once_no_row_is_applied_beside_one_that_does_not_fit(bed: MergeBed) -> None:
    bed.create(PRICES)
    feed = "1,bad,x,1\n1,which of both,1,1\n2,fine,2,1\n"
    assert adds_up(merge_rows(bed, feed, DROP))["rowsWaiting"] == 1
    assert names(bed) == {2: "fine"}
    bed.append([{"id": 3, "name": "n3", "price": 3, "seq": 0}])
    insert_only = {"when_matched": (), "when_not_matched": (INSERT,)}
    assert adds_up(merge_rows(bed, feed, REDIRECT, **insert_only))["rowsWaiting"] == 0  # each row stands for itself
    assert names(bed) == {1: "which of both", 2: "fine", 3: "n3"}
    by_source = {"when_not_matched_by_source": (MergeClause(action=MergeAction.DELETE),)}
    present = {"when_matched": (MergeClause(action=MergeAction.UPDATE, present=True),)}
    for fields in (by_source, present):
        with pytest.raises(BadSpec, match=r"spec.badRecords.policy: it must be Fail"):
            merge_rows(bed, feed, DROP, **fields)


def test_changes_that_come_again_hold_no_row_that_is_whole(bed: MergeBed) -> None:
    events(bed)
    feed = [
        event("u", 1, after=row(1, "early", T0, PLACEHOLDER)),
        event("u", 2, after=row(1, "bad", FOREVER)),
        event("u", 3, after=row(1, "whole", T1, "essay")),
    ]
    merge(bed, lines(bed, "1.json", *feed[:2]))
    merge(bed, lines(bed, "2.json", feed[0]))  # comes again, and what is missing after it stays so
    merge(bed, lines(bed, "3.json", event("u", 4, after=row(1, "waits", T1, PLACEHOLDER))), DROP)
    assert names(bed)[1] == "early"
    merge(bed, lines(bed, "4.json", event("u", 5, after=row(1, "whole", T1, "essay"))))
    report = merge(bed, lines(bed, "5.json", *feed[1:], event("u", 6, after=row(1, "last", T2, PLACEHOLDER))))
    counts = adds_up(report)
    assert (counts["rowsRejected"], counts["rowsWaiting"], counts["rowsSuperseded"]) == (0, 0, 2)
    assert names(bed)[1] == "last"


def test_another_attempt_and_a_dry_run_tell_what_is_left_out(bed: MergeBed) -> None:
    events(bed)
    path = lines(bed, "1.json", event("u", 1, after=row(1, "bad", FOREVER)), event("u", 2, after=row(2, "fine")))
    request = request_of(bed, path, REDIRECT)
    dry = replace(request, kind=RunKind.DRY_RUN, txn="")
    reporter = Reporter(dry)
    counts = run_dry(dry, reporter, bed.limits).counts
    assert (counts["rowsSource"], counts["rowsRejected"]) == (2, 1)
    assert not list((bed.root / ".skipstone").rglob("*.jsonl"))
    first, again = attempt(bed, request), attempt(bed, replace(request, run_id=f"{request.run_id[:-1]}2", attempt=2))
    assert (first.outcome, again.outcome) == (RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED)
    assert again.rejected_path == first.rejected_path
    assert "'feeds/1.json', line 1: column 'seen'" in first.message and first.message == again.message
    assert adds_up(again)["rowsRejected"] == 1
