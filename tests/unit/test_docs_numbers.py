"""Pages that quote benchmarks say what the page of the benchmarks says."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()
SECONDS = re.compile(r"\b(\d+(?:\.\d+)?) s\b")
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


@pytest.mark.parametrize(
    "number", ["0.47 s", "0.94 s", "273 MiB", "1,100 MiB", "44 requests", "0.11 s", "0.15 s", "0.51 s"]
)
def test_other_numbers_for_sizing_are_measured(number: str) -> None:
    assert number in BENCHMARKS
    assert number in (ROOT / "docs" / "sizing.md").read_text()
