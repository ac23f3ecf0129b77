"""Results of benchmarks are kept by case and scale, say where they come from, and are judged by one table of goals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.bench import results
from tests.bench.goals import MISSED, NOT_MEASURED, OK, Bound, Goal, all_goals, judged, rows_of
from tests.bench.results import is_left, keep, read, verdict
from tests.docs.blocks import ROOT

BENCH = ROOT / "tests" / "bench"
CALLS = re.compile(r"-m tests\.bench\.(\w+)")
COMMIT = "0123abcd"


@pytest.fixture(autouse=True)
def _committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "commit", lambda: COMMIT)


def test_every_benchmark_keeps_its_lines_and_prints_its_goals() -> None:
    modules = set(CALLS.findall((BENCH / "bench.mk").read_text())) - {"results", "everything", "page"}
    assert len(modules) > 20
    for module in sorted(modules):
        source = (BENCH / f"{module}.py").read_text()
        assert "keep(RESULTS" in source, f"{module}.py writes its lines by tests.bench.results.keep"
        assert source.count("show_goals(RESULTS)") == 1, f"{module}.py ends with show_goals(RESULTS)"


def test_every_goal_is_a_limit_of_a_measure() -> None:
    goals = list(all_goals())
    assert len(goals) == len(set(goals)) > 90
    for goal in goals:
        assert goal.bound.measure
        assert not goal.only_if or Bound.of(goal.only_if).measure
    with pytest.raises(ValueError, match="'fast' is not a limit: write it as MEASURE >= NUMBER"):
        Bound.of("fast")


def test_a_measure_does_not_take_the_place_of_where_it_was_measured(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="commit"):
        keep(tmp_path / "application.jsonl", {"case": "a merge", "commit": 19})
    assert read(tmp_path / "application.jsonl") == []


def test_a_line_is_kept_in_place_of_the_one_of_its_case_and_scale(tmp_path: Path) -> None:
    file = tmp_path / "bench" / "lookup.jsonl"
    case = "point, all synced: rows"
    keep(file, {"case": case, "scale": 3.0, "ratio": 20.0})
    keep(file, {"case": case, "scale": 1.0, "ratio": 9.0})
    kept = keep(file, {"case": case, "scale": 3.0, "ratio": 30.0})
    assert [(line["scale"], line["ratio"]) for line in read(file)] == [(1.0, 9.0), (3.0, 30.0)]
    assert kept == read(file)[-1]
    assert (kept["commit"], kept["goals"]) == (COMMIT, [{"measure": "ratio", "limit": ">= 25", "ok": True}])
    assert set(kept["machine"]) == {"cores", "memory_gib"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d\+00:00", kept["date"])


@pytest.mark.parametrize(
    ("line", "ok"),
    [
        ({"case": "recent keys", "limit_ratio": 0.59, "files": {"touched": 4}}, "NOT ok"),
        ({"case": "recent keys", "limit_ratio": 0.6, "files": {"touched": 4}}, "ok"),
        ({"case": "recent keys", "limit_ratio": 0.1, "files": {"touched": 3}}, ""),
        ({"case": "recent keys", "ratio_cow": 5.0, "ratio_fitting": 1.4}, "NOT ok"),
        ({"case": "recent keys", "limit_ratio": None, "ratio_cow": None}, ""),
    ],
)
def test_a_line_has_the_goals_whose_measure_and_condition_it_has(line: dict[str, Any], ok: str) -> None:
    assert verdict({"goals": judged("merge", line)}) == ok
    assert judged("lookup", line) == []


def test_a_goal_counts_at_its_scales_only() -> None:
    goal = Goal("lookup", "point, *: rows", "ratio >= 25", (3,))
    lines = [{"case": "point, all synced: rows", "scale": scale, "ratio": 20, "commit": COMMIT} for scale in (1, 3)]
    (row,) = rows_of(goal, lines)
    assert (row.verdict, row.line) == (MISSED, lines[1])
    assert row.text.split() == f"lookup: point, all synced: rows, scale 3 20 ratio >= 25 missed ({COMMIT})".split()
    (row,) = rows_of(goal, lines[:1])
    assert row.verdict == NOT_MEASURED
    assert row.text.endswith("not measured at scale 3")


def test_a_case_that_failed_misses_its_goals() -> None:
    lines = [
        {"case": "merge, 1024 texts", "error": "killed", "commit": COMMIT},
        {"case": "load, 1024 texts", "ours_mib": 1.5, "commit": COMMIT},
    ]
    rows = rows_of(Goal("memory", "*", "ours_mib <= 700"), lines)
    assert [row.verdict for row in rows] == [MISSED, OK]
    assert "failed" in rows[0].text


def test_only_a_call_that_resumes_leaves_out_what_its_commit_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lookup.jsonl"
    keep(file, {"case": "a", "scale": 3.0})
    assert is_left(file, ["a"], 3.0)
    monkeypatch.setenv(results.RESUME, "1")
    assert not is_left(file, ["a"], 3.0)
    assert is_left(file, ["a"], 1.0)
    assert is_left(file, ["a", "b"], 3.0)
    monkeypatch.setattr(results, "commit", lambda: "another")
    assert is_left(file, ["a"], 3.0)
    monkeypatch.setattr(results, "commit", lambda: f"{COMMIT}{results.DIRTY}")
    keep(file, {"case": "a", "scale": 3.0})
    assert is_left(file, ["a"], 3.0), "files that differ from a commit differ from each other, too"


def test_goals_of_older_commits_are_shown_but_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pruning.jsonl"
    keep(file, {"case": "int64, spread", "cpu_s": 9.0})
    assert not results.show_goals(file)
    monkeypatch.setattr(results, "commit", lambda: "another")
    assert results.show_goals(file)
    assert capsys.readouterr().out.count(f"missed ({COMMIT})") == 2
