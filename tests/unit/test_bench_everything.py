"""All benchmarks in one call: what is done is left out, and one that fails does not stop the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench import everything, results
from tests.bench.everything import PLAN, Step
from tests.docs.blocks import ROOT

CALLS = re.compile(r"-m tests\.bench\.(\w+)")
COMMIT = "0123abcd"
Call = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs two steps: a module that does not exist, and one that prints goals. Returns what is printed."""
    monkeypatch.setattr(everything, "PLAN", (Step("missing"), Step("results", small="")))
    monkeypatch.setattr(results, "commit", lambda: COMMIT)
    monkeypatch.setattr(results, "current_commit", lambda: COMMIT)

    def call(*arguments: str) -> str:
        monkeypatch.setattr(results, "FOLDER", tmp_path / "bench")
        monkeypatch.setattr("sys.argv", ["everything", *arguments])
        everything.main()
        return capsys.readouterr().out

    return call


def test_every_benchmark_is_in_the_plan_and_most_are_in_small_runs() -> None:
    modules = set(CALLS.findall((ROOT / "tests" / "bench" / "bench.mk").read_text()))
    assert {step.module for step in PLAN} == modules - {"results", "everything", "page"}
    assert {step.module for step in PLAN if step.small is not None} == {step.module for step in PLAN}
    for size in ("full", "small"):
        names = [step.name(size) for step in PLAN if step.arguments(size) is not None]
        assert len(names) == len(set(names)), "a call is found again by its name"


def test_a_failure_stops_nothing_and_is_told_at_the_end(run: Call, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1 of 2 benchmarks failed; the same call measures only these again"):
        run()
    printed = capsys.readouterr().out
    assert "[1 of 2] missing; 0 min 00 s so far; next: results" in printed
    assert "not measured" in printed.partition("[2 of 2] results")[2]
    assert re.search(
        r"^FAILED: missing: exit code 1 after .*; its output is in \S+missing\.log$", printed, re.MULTILINE
    )
    with pytest.raises(SystemExit, match="1 of 1 benchmarks failed"):
        run()
    printed = capsys.readouterr().out
    assert "2 benchmarks, 1 of them are measured on 0123abcd" in printed
    assert re.search(r"\[1 of 1\] missing, 0 min 0\d s the last time", printed)


def test_what_a_commit_has_measured_is_left_out(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "left  results" in run("--small", "--list")
    assert "[1 of 1] results" in run("--small")
    assert results.FOLDER.name == "bench-small"
    assert "done  results" in run("--small", "--list")
    assert "[1 of" not in run("--small")
    assert "[1 of 1] results" in run("--small", "--again")
    monkeypatch.setattr(results, "commit", lambda: "another")
    assert "left  results" in run("--small", "--list")


def test_files_that_differ_from_their_commit_have_measured_nothing(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("commit", "current_commit"):
        monkeypatch.setattr(results, name, lambda: f"{COMMIT}{results.DIRTY}")
    assert "[1 of 1] results" in run("--small")
    assert "[1 of 1] results" in run("--small")


def test_it_ends_when_another_commit_is_checked_out(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "current_commit", lambda: "another")
    with pytest.raises(SystemExit, match="the files are no longer those of 0123abcd: call it again to measure these"):
        run("--small")


def test_a_benchmark_that_takes_too_long_is_ended(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everything, "LIMITS", {"small": 0.01})
    with pytest.raises(SystemExit, match="1 of 1 benchmarks failed"):
        run("--small")


def test_benchmarks_are_chosen_by_parts_of_their_calls(run: Call) -> None:
    assert "left  missing" in run("--list", "--only", "miss;nothing")
    assert "results" not in run("--list", "--only", "miss;nothing").partition("\n")[2].partition("\n")[2]
    assert run("--list", "--without", "miss;").count("left ") == 1
