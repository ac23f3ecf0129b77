"""The pages of decisions: each is listed, has its parts, and names places that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "docs" / "decisions").glob("*.md") if page.name != "README.md")
PARTS = ("# ", "**Decision.** ", "**Why.** ", "**What follows.**", "**Where.** ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_its_parts_and_its_places_are_there(page: Path) -> None:
    text = page.read_text()
    starts = [re.search(f"^{re.escape(part)}", text, re.MULTILINE) for part in PARTS]
    places = [start.start() for start in starts if start]
    assert len(places) == len(PARTS)
    assert places == sorted(places)
    where = re.findall(r"`([^`]+)`", text.partition("**Where.**")[2])
    assert where
    assert [place for place in where if not (ROOT / place).exists()] == []


def test_every_decision_is_listed_by_its_title() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    titles = {page.name: page.read_text().partition("\n")[0].removeprefix("# ") for page in PAGES}
    assert {name: title for title, name in re.findall(r"^- \[(.+)\]\((.+)\)$", index, re.MULTILINE)} == titles
