"""Every reason says what to do about it, and the page of reasons shows the same."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from skipstone_core.reasons import Reason
from skipstone_core.remedies import REMEDIES, find_remedy
from skipstone_operator.resources.kinds import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reasons.md"


def test_every_reason_has_one_remedy() -> None:
    assert set(REMEDIES) == set(Reason)


@pytest.mark.parametrize("reason", Reason, ids=lambda one: one.value)
def test_a_remedy_is_a_sentence_of_the_page(reason: Reason) -> None:
    assert REMEDIES[reason].endswith(".")
    assert f"| `{reason.value}` | {reason.sentence} | {REMEDIES[reason]} |" in PAGE.read_text()


def frozen_fields() -> set[str]:
    """Fields of specs that never change, in every kind that has them."""
    frozen, free = set[str](), set[str]()
    for kind in KINDS.values():
        mine = {
            rule.field_path.removeprefix(".")
            for rule in getattr(kind.spec, "RULES", ())
            if "after creation" in rule.message
        }
        frozen |= mine
        free |= {to_camel(field.name) for field in fields(kind.spec)} - mine
    return frozen - free


def to_camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def test_no_remedy_sends_people_to_a_field_that_never_changes() -> None:
    never = frozen_fields()
    assert {"tableRef", "warehouseRef", "identifier", "source"} <= never
    for reason, remedy in REMEDIES.items():
        named = never & set(re.findall(r"spec\.(\w+)", remedy))
        assert not named or re.search(r"\b(again|new|[Cc]reate)\b", remedy), (reason, named)


def test_the_word_of_a_status_finds_its_remedy() -> None:
    assert find_remedy("Suspended") == "Set spec.suspend to false."
    assert find_remedy("OfAnotherRelease") == ""
