"""A change format is one module: the registry has it, and no other line of the packages names its tool."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from skipstone.sources.feeds.registry import all_tools
from skipstone_core.contract.formats import ChangeFormat
from skipstone_core.contract.requests import SourceSpec

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "operator", "report", "spark_apps", "cli", "local")
TOOLS = ROOT / "spark_apps" / "skipstone" / "sources" / "feeds" / "tools"
NAMED = re.compile(r"\bChangeFormat\.[A-Z]")


def test_every_change_format_is_read_by_a_tool() -> None:
    assert set(all_tools()) == set(ChangeFormat)


@pytest.mark.parametrize("tool", ChangeFormat)
def test_a_change_format_is_told_of_in_fields_that_there_are(tool: ChangeFormat) -> None:
    assert set(tool.feed.fields) <= {one.name for one in fields(SourceSpec)}
    assert bool(tool.feed.table_names) == ("tables" in tool.feed.fields)
    assert all(set(envelope.rows) & (envelope.all_of | frozenset().union(*envelope.one_of))
               for envelope in tool.feed.envelopes)  # fmt: skip


def test_only_tools_name_a_change_format() -> None:
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if TOOLS not in path.parents]
    assert len(modules) > 500
    assert [str(path.relative_to(ROOT)) for path in modules if NAMED.search(path.read_text())] == []
