"""Numbers of the benchmarks' page come from files of results, and say when and on which commit they were measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import page, results
from tests.bench.published import TABLES
from tests.bench.tables import count, goal_of, rounded, seconds
from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
PART = re.compile(r"<!-- results of (\S+): .*?-->\n(.*?)<!-- end of results of \1 -->", re.DOTALL)
CELL = re.compile(r"\d[\d.,]*(?: (?:s|ms|MiB|GiB|KiB|MB|requests|%|times|x))?")
QUANTITY = re.compile(r"\b\d[\d.,]* (?:s|ms|MiB|GiB|KiB|requests)\b")
COMMIT = re.compile(r"\b[0-9a-f]{8}, \d{1,2} [A-Z][a-z]+ 20\d\d")
#: Numbers that a test counts, and the file of that test.
COUNTED = {"Calls to the JVM": "tests/spark/test_plans_states.py"}


def _tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of each table: rows of the table, the head first."""
    for found in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in found.splitlines()]
        yield [rows[0], *rows[2:]]


@pytest.mark.parametrize("path", sorted(page.pages()), ids=lambda path: path.name)
def test_no_number_in_a_table_is_written_by_hand(path: Path) -> None:
    by_hand = PART.sub("", path.read_text()) if path.name == "benchmarks.md" else ""
    for head, *rows in _tables(by_hand):
        numbers = [cell for row in rows for cell in row if CELL.fullmatch(cell)]
        counted = "".join((ROOT / COUNTED[name]).read_text() for name in head if name in COUNTED)
        assert all(number in counted for number in numbers), f"{head}: take the numbers from docs/results"


def test_the_text_does_not_repeat_quantities_of_its_tables() -> None:
    for section in (DOCS / "benchmarks.md").read_text().split("\n## "):
        measured = [row for name, part in PART.findall(section) for head, *rows in _tables(part) for row in rows]
        shown = {quantity for row in measured for cell in row[1:] for quantity in QUANTITY.findall(cell)}
        goals = {row[-1] for row in measured}
        text = PART.sub("", section)
        repeated = {quantity for quantity in QUANTITY.findall(text) if quantity in shown - goals}
        assert not repeated, f"{section.splitlines()[0]}: a new measurement changes the table only"


def test_each_table_is_on_its_page_with_its_command_and_commit() -> None:
    for table in TABLES:
        parts = dict(PART.findall((DOCS / table.page).read_text()))
        body = parts[table.name]
        assert f"*`{table.call}`" in body
        (rows,) = _tables(body)
        if len(rows) > 1:
            assert COMMIT.search(body), f"{table.name} does not say on which commit it was measured"
        lines = results.read(page.TAKEN / f"{table.benchmark}.jsonl")
        assert {len(row.cells) for row in table.rows(lines)} <= {len(table.columns)}


def test_pages_are_fresh_and_a_changed_result_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert page.main(["--check"]) == 0
    for file in page.TAKEN.iterdir():
        text = file.read_text().replace('"ours_s": ', '"ours_s": 1') if file.stem == "lookup" else file.read_text()
        (tmp_path / file.name).write_text(text)
    monkeypatch.setattr(page, "TAKEN", tmp_path)
    assert page.main(["--check"]) == 1
    assert "benchmarks.md differs from docs/results: run `make generate`" in capsys.readouterr().err


def _kept(folder: Path, monkeypatch: pytest.MonkeyPatch, commit: str, **line: object) -> None:
    monkeypatch.setattr(results, "commit", lambda: commit)
    results.keep(folder / "bench" / "lookup.jsonl", {"case": "point, all synced: rows", **line})


def test_results_are_taken_that_are_published_and_were_measured_on_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(page, "TAKEN", tmp_path / "results")
    taken = tmp_path / "results" / "lookup.jsonl"
    _kept(tmp_path, monkeypatch, "0123abcd", scale=1.0, ratio=5.0)
    _kept(tmp_path, monkeypatch, "0123abcd", scale=3.0, ratio=20.123456, counts={"files": 1})
    _kept(tmp_path, monkeypatch, "0123abcd-dirty", scale=10.0, ratio=9.0)
    page.take("lookup")
    assert "was measured on changed files" in capsys.readouterr().out
    (line,) = map(json.loads, taken.read_text().splitlines())
    assert {name: line[name] for name in ("scale", "ratio", "commit")} == {
        "scale": 3.0,
        "ratio": 20.12,
        "commit": "0123abcd",
    }
    assert not {"goals", "counts"} & line.keys()
    _kept(tmp_path, monkeypatch, "4567abcd", scale=3.0, ratio=30.0)
    page.take("lookup")
    (line,) = map(json.loads, taken.read_text().splitlines())
    assert (line["commit"], line["ratio"]) == ("4567abcd", 30.0)


def test_numbers_are_shown_with_the_digits_that_were_measured() -> None:
    assert [rounded(value) for value in (0.1234, 9.999, 0.5, 12.34, 123.4, 1234.5, 2, -0.126)] == [
        "0.12", "10.00", "0.5", "12.3", "123", "1,234", "2", "-0.13",
    ]  # fmt: skip
    assert [seconds(value) for value in (0.0123, 0.06, 1.5, None)] == ["0.012 s", "0.06 s", "1.5 s", ""]
    assert [count(value) for value in (1234, 0, -1, None)] == ["1,234", "0", "", ""]


def test_a_table_shows_the_goal_that_is_judged() -> None:
    line = {"case": "server: 16 callers", "plans_a_second": 70.0, "p99_s": 0.5}
    assert goal_of("server", line) == "60, 1"
    assert goal_of("server", line, "p99_s") == "1"
