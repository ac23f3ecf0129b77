"""Every reason is documented, produced by the code and shown by a test."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from skipstone_core.reasons import Reason

ROOT = Path(__file__).parents[2]
CODE = ("core/skipstone_core", "operator/skipstone_operator", "spark_apps/skipstone")
#: Lists of all reasons: what they name is not produced by that.
LISTS = ("reasons.py", "remedies.py")
TESTS = ("tests/unit", "tests/spark", "tests/kube", "tests/e2e")


@cache
def text_of(*folders: str) -> str:
    files = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return "\n".join(path.read_text() for path in files if path.name not in LISTS)


def is_named(reason: Reason, text: str) -> bool:
    return f"Reason.{reason.name}" in text or f'"{reason.value}"' in text


@pytest.mark.parametrize("reason", Reason, ids=lambda r: r.value)
def test_a_reason_has_a_sentence(reason: Reason) -> None:
    assert reason.sentence.endswith(".")
    assert reason.value in (ROOT / "docs" / "reference" / "reasons.md").read_text()


@pytest.mark.parametrize("reason", Reason, ids=lambda r: r.value)
def test_a_reason_is_produced(reason: Reason) -> None:
    assert is_named(reason, text_of(*CODE))


@pytest.mark.parametrize("reason", Reason, ids=lambda r: r.value)
def test_a_reason_is_shown_by_a_test(reason: Reason) -> None:
    assert is_named(reason, text_of(*TESTS))
