"""Charts and judgements of the report: cells, coverage, lag, stages and problems, asked by what they give."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.reasons import Reason
from skipstone_core.remedies import find_remedy
from skipstone_report.charts.coverage import Cell, columns, judge_segment
from skipstone_report.charts.filemap import COLUMNS, MAX_CELLS, classify, draw_filemap, share_cells
from skipstone_report.charts.funnel import draw_funnel
from skipstone_report.charts.lag import draw_lag, find_landings
from skipstone_report.charts.waterfall import read_stages
from skipstone_report.markup import format_bytes, format_seconds, tag
from skipstone_report.problems import Urgency, find_problems
from skipstone_report.reading import Entity, read_entities, read_time

from tests.unit import objects
from tests.unit.report_cases import (
    FUNNEL,
    NOW,
    FileFunnel,
    at,
    failed_merge,
    indexed,
    loaded,
    maintained_table,
    merged,
    running_merge,
    sample,
)
from tests.unit.report_pages import Element, read_page

Obj = dict[str, Any]


def entity(obj: Obj) -> Entity:
    (found,) = read_entities([obj])
    return found


def drawn(html: str) -> Element:
    return read_page(html)


class TestFiles:
    def test_every_file_is_in_one_class(self) -> None:
        files = FileFunnel(total=120, candidate=30, touched=22, rewritten=4, marked=9)
        classes = classify(entity(merged("m", files)))
        assert classes is not None
        assert [one.files for one in classes] == [90, 8, 9, 4, 9]
        assert sum(one.files for one in classes) == 120

    def test_what_is_rewritten_for_rows_without_a_source_key_is_no_contradiction(self) -> None:
        classes = classify(entity(merged("m", FileFunnel(total=9, candidate=5, touched=1, rewritten=3))))
        assert classes is not None
        assert [one.files for one in classes] == [4, 2, 0, 3, 0]

    @pytest.mark.parametrize(
        "files", [FileFunnel(total=3, candidate=9), FileFunnel(total=9, candidate=2, touched=5, rewritten=5)]
    )
    def test_counts_that_do_not_add_up_are_said_to_be_so(self, files: FileFunnel) -> None:
        merge = entity(merged("m", files))
        assert classify(merge) is None
        assert "do not add up" in draw_filemap(merge).html

    def test_of_a_running_merge_only_candidates_are_known(self) -> None:
        classes = classify(entity(running_merge("now")))
        assert classes is not None
        assert [(one.fill, one.files) for one in classes] == [("pruned", 4088), ("candidate", 24)]
        assert "Touched" not in draw_funnel(entity(running_merge("now"))).html

    @given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
    def test_cells_are_shared_fairly_and_nobody_gets_lost(self, amounts: list[int]) -> None:
        cells = share_cells(amounts, MAX_CELLS)
        assert sum(cells) == min(sum(amounts), MAX_CELLS)
        assert all((cell > 0) == (amount > 0) for cell, amount in zip(cells, amounts, strict=True))
        if sum(amounts) > MAX_CELLS:
            exact = [amount * MAX_CELLS / sum(amounts) for amount in amounts]
            assert all(abs(cell - one) <= len(amounts) for cell, one in zip(cells, exact, strict=True))

    @given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
    def test_the_map_has_each_cell_once(self, pruned: int, vain: int, rewritten: int) -> None:
        files = FileFunnel(
            total=pruned + vain + rewritten, candidate=vain + rewritten, touched=rewritten, rewritten=rewritten
        )
        tree = drawn(draw_filemap(entity(merged("m", files))).html)
        (chart,) = tree.find("svg", class_="map")
        cells: list[tuple[int, int]] = []
        for box in chart.find("rect"):
            x, y, width, height = (int(box.attributes[name]) // 8 for name in ("x", "y", "width", "height"))
            cells += [(column, row) for row in range(y, y + height) for column in range(x, x + width)]
        expected = [(at % COLUMNS, at // COLUMNS) for at in range(pruned + vain + rewritten)]
        assert sorted(cells, key=lambda cell: (cell[1], cell[0])) == expected

    def test_scaling_is_said(self) -> None:
        text = draw_filemap(entity(merged("m", FileFunnel(total=4000, candidate=1)))).html
        assert "One cell is about 4.0 data files" in text
        assert "One cell is one data file" in draw_filemap(entity(merged("m", FileFunnel(total=4, candidate=1)))).html


def test_the_funnel_names_stages_in_order_and_says_why_one_was_left_out() -> None:
    tree = drawn(draw_funnel(entity(merged("m", FileFunnel(total=4112, candidate=19, touched=17), FUNNEL))).html)
    (shown,) = tree.find("ol")
    assert [one.text for one in shown.find("span", class_="stage")] == [
        *("All files", "Partitions", "TargetWhere", "KeyRanges", "KeyIndex", "Bloom", "Candidates"),
        *("ExactJoin", "Touched", "Rewritten"),
    ]
    assert "Left out (NotPartitionedByKey): no candidate file is partitioned by a key column" in shown.text
    assert "Left out (NoTargetWhere): The job has no targetWhere" in shown.text


class TestCoverage:
    def judge(self, segment: int, missing: tuple[int, ...], **status: Any) -> Cell:
        obj = indexed("by-tail", "tailnum", missing, count=status.pop("count", len(missing)))
        obj["status"] |= status
        return judge_segment(entity(obj), segment)

    def test_a_named_segment_is_missing(self) -> None:
        assert self.judge(4, (4, 9)) is Cell.MISSING

    def test_with_a_complete_list_every_other_one_is_covered(self) -> None:
        assert self.judge(12, (4, 9)) is Cell.COVERED
        assert self.judge(12, ()) is Cell.COVERED

    def test_a_cut_list_tells_only_of_what_lies_before_its_end(self) -> None:
        listed = tuple(range(2, 42, 2))
        assert self.judge(7, listed, count=25) is Cell.COVERED
        assert self.judge(41, listed, count=25, tableSequenceNumber=60) is Cell.UNKNOWN

    def test_what_came_after_the_last_look_is_not_judged(self) -> None:
        assert self.judge(31, ()) is Cell.LATER

    def test_up_to_the_synced_number_all_is_covered(self) -> None:
        assert self.judge(5, (), syncedSequenceNumber=5, segments={}, tableSequenceNumber=None) is Cell.COVERED
        assert self.judge(6, (), syncedSequenceNumber=5, segments={}, tableSequenceNumber=None) is Cell.UNKNOWN

    def test_nothing_is_known_of_an_index_without_a_status(self) -> None:
        assert judge_segment(entity(objects.index()), 3) is Cell.UNKNOWN

    def test_columns_are_what_any_index_misses(self) -> None:
        indexes = [entity(indexed("a", "x", (4, 9))), entity(indexed("b", "x", (2, 9)))]
        assert columns(indexes) == (2, 4, 9)


class TestLag:
    def test_a_scheduled_job_counts_from_its_time_and_others_from_their_creation(self) -> None:
        jobs = [entity(merged("m", FileFunnel(), hours=2)), entity(loaded("l", 7, hours=3))]
        found = find_landings(jobs, NOW)
        assert [(one.job.name, one.seconds) for one in found] == [("l", 25.0), ("m", 240.0)]

    def test_what_has_not_ended_or_ends_in_the_future_is_not_drawn(self) -> None:
        late = loaded("l", 7, hours=3)
        late["status"]["completionTime"] = "2027-01-01T00:00:00Z"
        assert find_landings([entity(running_merge("r")), entity(late)], NOW) == ()

    def test_failed_jobs_are_marked_and_told(self) -> None:
        found = find_landings([entity(failed_merge("f", hours=1))], NOW)
        text = draw_lag("lake/flights", found, (), NOW).html
        assert "#mark-failed" in text and "MergeJob f: failed 22 min after it was due" in text

    def test_a_sync_after_the_last_job_is_drawn_too(self) -> None:
        index = indexed("by-tail", "tailnum", ())
        index["status"]["lastSyncTime"] = at(minutes=1)
        drawing = draw_lag("t", find_landings([entity(loaded("l", 1, hours=5))], NOW), [entity(index)], NOW).html
        assert drawn(drawing).find("use", href="#mark-sync")

    def test_points_lie_inside_the_chart(self) -> None:
        jobs = [entity(loaded(f"l{number}", 1, days=number, seconds=3**number)) for number in range(12)]
        tree = drawn(draw_lag("t", find_landings(jobs, NOW), (), NOW).html)
        points = tree.find("use")
        assert len(points) == 12
        assert all(0 <= float(one.attributes["x"].rstrip("%")) <= 100 for one in points)
        assert all(0 <= float(one.attributes["y"]) <= 150 for one in points)


def test_stages_follow_the_order_of_runs_and_unknown_ones_come_last() -> None:
    job = merged("m", FileFunnel())
    job["status"]["lastRun"]["stagesMs"] = {"commit": 3, "aardvark": 4, "read": 2, "open": 1, "bad": -1, "odd": "9"}
    stages = read_stages(entity(job), "status.lastRun")
    assert [(one.name, one.spent.value) for one in stages] == [("open", 1), ("read", 2), ("commit", 3), ("aardvark", 4)]


class TestProblems:
    def test_the_urgent_come_first_and_each_says_the_way_out(self) -> None:
        found = find_problems(read_entities(sample()))
        assert [one.urgency for one in found] == sorted(one.urgency for one in found)
        (failed,) = (one for one in found if one.entity.name == "hourly-1")
        assert failed.way_out == find_remedy(Reason.DUPLICATE_SOURCE_KEYS) != ""
        assert failed.meaning == Reason.DUPLICATE_SOURCE_KEYS.sentence

    def test_jobs_that_failed_do_not_bury_what_is_older(self) -> None:
        table, failed = maintained_table(), [failed_merge(f"f{number}", minutes=number + 1) for number in range(9)]
        first = find_problems(read_entities([*failed, table]))[0]
        assert first.entity.kind == "Table"

    def test_one_cause_in_two_conditions_is_one_problem(self) -> None:
        obj = failed_merge("f", hours=1)
        (first,) = obj["status"]["conditions"]
        obj["status"]["conditions"].append({**first, "type": "Degraded"})
        assert len(find_problems(read_entities([obj]))) == 1

    @pytest.mark.parametrize(
        ("type_", "status", "reason", "urgency"),
        [
            ("Ready", "False", "SchemaMismatch", Urgency.ACT),
            ("Ready", "False", "CheckPending", Urgency.WAIT),
            ("Ready", "False", "FromAnotherRelease", Urgency.ACT),
            ("Healthy", "False", "MaintenanceFailed", Urgency.ACT),
            ("Degraded", "True", "IndexDamaged", Urgency.ACT),
            ("Progressing", "True", "ImagePullFailed", Urgency.ACT),
            ("Progressing", "True", "OutcomeUnknown", Urgency.WATCH),
            ("Progressing", "False", "WaitingForTurn", Urgency.WAIT),
            ("Progressing", "True", "DriverRunning", None),
            ("Ready", "True", "Created", None),
            ("Failed", "False", "Idle", None),
            ("Foreign", "False", "Anything", None),
        ],
    )
    def test_conditions_are_judged(self, type_: str, status: str, reason: str, urgency: Urgency | None) -> None:
        obj = maintained_table()
        obj["status"] = {"conditions": [{"type": type_, "status": status, "reason": reason}]}
        assert [one.urgency for one in find_problems(read_entities([obj]))] == ([] if urgency is None else [urgency])

    def test_a_refused_property_is_a_problem(self) -> None:
        (found,) = (one for one in find_problems(read_entities([maintained_table()])) if one.urgency is Urgency.ACT)
        assert found.message.startswith("write.format.default is orc")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_048_575, "1.0 MiB"), (18_874_368, "18.0 MiB")],
)
def test_bytes_are_rounded_to_a_unit(value: int, text: str) -> None:
    assert format_bytes(value) == text
    assert format_bytes((1 << 63) - 1) == "8.0 EiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *(
            (0, "0 ms"),
            (0.25, "250 ms"),
            (12.5, "12.5 s"),
            (40, "40 s"),
            (60, "1 min"),
            (243, "4 min 3 s"),
            (3600, "1 h"),
        ),
        *((3600, "1 h"), (5400, "1 h 30 min"), (200_000, "2 d 7 h")),
    ],
)
def test_times_are_written_as_people_do(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.text() | st.integers() | st.none())
def test_a_time_is_read_or_absent(text: object) -> None:
    found = read_time(text)
    assert found is None or found.utcoffset() == timedelta(0)


@given(st.text(st.characters(exclude_characters="\r", exclude_categories=("Cs", "Cc"))))
def test_texts_and_attributes_come_back_as_they_were(text: str) -> None:
    tree = read_page(tag("p", text, title=text).html)
    (found,) = tree.find("p")
    assert found.text == text
    assert found.attributes["title"] == text
