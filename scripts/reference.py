"""Writes docs/reference/reasons.md from the one list of reasons; with --check it only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from skipstone_core.reasons import Reason
from skipstone_core.remedies import REMEDIES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "reasons.md"
HEAD = """# Reasons

Generated from `skipstone_core.reasons` and `skipstone_core.remedies`. Conditions, Events and metric labels use these
and no others. [`skipstone why`](cli.md#why) shows the same sentences for one resource.

| Reason | Meaning | What to do |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"| `{reason.value}` | {reason.sentence} | {REMEDIES[reason]} |\n" for reason in Reason)


def main(argv: list[str]) -> int:
    """Write the page, or compare it when --check is given."""
    if "--check" in argv:
        if not PAGE.exists() or PAGE.read_text() != page():
            print(f"{PAGE.name} differs from the list of reasons: run `make generate`", file=sys.stderr)
            return 1
        return 0
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
