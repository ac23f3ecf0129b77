"""Every reason says what to do about it, and the page of reasons shows the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from skipstone_core.reasons import Reason
from skipstone_core.remedies import REMEDIES, find_remedy

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reasons.md"


def test_every_reason_has_one_remedy() -> None:
    assert set(REMEDIES) == set(Reason)


@pytest.mark.parametrize("reason", Reason, ids=lambda one: one.value)
def test_a_remedy_is_a_sentence_of_the_page(reason: Reason) -> None:
    assert REMEDIES[reason].endswith(".")
    assert f"| `{reason.value}` | {reason.doc} | {REMEDIES[reason]} |" in PAGE.read_text()


def test_the_word_of_a_status_finds_its_remedy() -> None:
    assert find_remedy("Suspended") == "Set spec.suspend to false."
    assert find_remedy("OfAnotherRelease") == ""
