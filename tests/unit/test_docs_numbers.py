"""Pages that quote benchmarks say what the page of the benchmarks says."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()
SECONDS = re.compile(r"\b(\d+(?:\.\d+)?) s\b")
QUANTITY = re.compile(r"\b\d[\d.,]* (?:s|MiB|requests)\b")
MEASURED = re.compile(r"[^|()]*\(measured[^)]*\)")
BYTES = re.compile(r"^\| [^|]+ \| (\d+\.\d) \|", re.MULTILINE)


def test_seconds_that_are_compared_are_measured() -> None:
    quoted = set(SECONDS.findall((ROOT / "docs" / "do-i-need-this.md").read_text()))
    assert len(quoted) > 15
    assert quoted <= set(re.findall(r"\d+(?:\.\d+)?", BENCHMARKS))


def test_bytes_of_an_index_are_measured() -> None:
    sized = set(BYTES.findall((ROOT / "docs" / "sizing.md").read_text()))
    part = BENCHMARKS.partition("## Size of an index")[2].partition("## ")[0]
    assert len(sized) >= 5
    assert sized <= set(BYTES.findall(part))


def test_measured_numbers_for_sizing_are_those_of_the_benchmarks() -> None:
    page = (ROOT / "docs" / "sizing.md").read_text()
    quoted = {number for sentence in MEASURED.findall(page) for number in QUANTITY.findall(sentence)}
    assert len(quoted) > 10
    assert quoted <= set(QUANTITY.findall(BENCHMARKS))
