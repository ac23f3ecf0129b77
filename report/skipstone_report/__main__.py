"""``python -m skipstone_report FILE.json... > report.html``: the page about what kubectl printed.

A file is what ``kubectl get wh,tbl,si,lj,mj,ms -A -o json`` prints; ``-`` is the standard input. Exit codes: 0 written,
1 a file cannot be used or the page cannot be written, 130 interrupted.
"""

from __future__ import annotations

import json
import os
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


INTERRUPTED = 130


class Unusable(Exception):
    """A file cannot be used, or the page cannot be written; the text says why and what to do."""


def main(names: Sequence[str]) -> int:
    """Write the page to the standard output; the exit code."""
    try:
        if not names or any(name.startswith("--") for name in names):
            raise Unusable(USAGE)
        objects = [obj for name in names for obj in _read(name)]
        _write(render_report(objects, datetime.now(UTC)))
    except Unusable as error:
        sys.stderr.write(f"skipstone_report: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _read(name: str) -> list[Mapping[object, object]]:
    try:
        document = json.loads(_input() if name == "-" else Path(name).read_bytes())
    except OSError as error:
        raise Unusable(f"{name}: {error.strerror or error}: name a file that can be read") from error
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{name} is not JSON ({error}): make it with kubectl get … -o json") from error
    if not _holds_objects(document):
        raise Unusable(f"{name} holds no Kubernetes objects: make it with kubectl get … -o json")
    return list(find_objects(document))


def _holds_objects(document: object) -> bool:
    """Return whether it is an object or a list, which may be empty, and not the answer of a refused request."""
    if not isinstance(document, Mapping):
        return False
    kind = document.get("kind")
    return isinstance(document.get("items"), list) or (isinstance(kind, str) and kind != "Status")


def _input() -> bytes:
    if sys.stdin is None:
        raise Unusable("the standard input is closed: name a file, or pipe one in")
    return sys.stdin.buffer.read()


def _write(page: str) -> None:
    """Write all of it. Raises Unusable, but not when whoever reads it has seen enough."""
    if sys.stdout is None:
        raise Unusable("the standard output is closed: send the page to a file")
    try:
        sys.stdout.buffer.write(page.encode())
        sys.stdout.buffer.flush()
    except OSError as error:
        # What is buffered must not fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise Unusable(f"the page cannot be written: {error.strerror}: send it to another place") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
