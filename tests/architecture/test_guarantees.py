"""Every guarantee names its limit and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| Promise ")
]


def test_the_page_has_guarantees() -> None:
    assert len(ROWS) > 10


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_guarantee_has_a_limit_and_a_test(row: list[str]) -> None:
    promise, limit, shown = row
    assert promise.endswith(".")
    assert limit.endswith(".")
    named = re.findall(r"`([^`]+)`", shown)
    assert named
    for name in named:
        module, _, case = name.partition("::")
        assert (ROOT / module).is_file(), module
        assert not case or f"def {case}(" in (ROOT / module).read_text(), name
