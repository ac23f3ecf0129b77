"""``python -m skipstone_report FILE.json... > report.html``: the page about what kubectl printed.

A file is what ``kubectl get wh,tbl,si,lj,mj,ms -A -o json`` prints; ``-`` is the standard input. Exit codes: 0 written,
1 a file cannot be used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from skipstone_report.page import render_report
from skipstone_report.reading import find_objects

USAGE = (
    "name at least one file with the output of kubectl get wh,tbl,si,lj,mj,ms -A -o json, or - for the standard input: "
    "python -m skipstone_report FILE.json... > report.html"
)


class Unusable(Exception):
    """A file cannot be used; the text says why and what to do."""


def main(names: Sequence[str]) -> int:
    """Write the page to the standard output; the exit code."""
    try:
        if not names or any(name.startswith("--") for name in names):
            raise Unusable(USAGE)
        objects = [obj for name in names for obj in _read(name)]
    except Unusable as error:
        sys.stderr.write(f"skipstone_report: {error}\n")
        return 1
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(render_report(objects, datetime.now(UTC)))
    return 0


def _read(name: str) -> list[Mapping[object, object]]:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return list(find_objects(json.loads(data)))
    except OSError as error:
        raise Unusable(f"{name}: {error.strerror or error}: name a file that can be read") from error
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{name} is not JSON ({error}): make it with kubectl get … -o json") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
