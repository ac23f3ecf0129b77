"""What the demonstrations on a cluster and on this machine have in common: headlines, and what statuses say."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

JsonObject = dict[str, Any]


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print a step's headline and its time."""
    start = time.monotonic()
    print(f"\n--- {text}", flush=True)
    yield
    print(f"    ({time.monotonic() - start:.0f} s)", flush=True)


def without_age(table: str) -> str:
    """A kubectl table without its last columns, which change by themselves."""
    lines = table.rstrip().splitlines()
    places = [lines[0].rfind(column) for column in ("LASTSYNC", "AGE")] if lines else []
    at = min((place for place in places if place > 0), default=None)
    return "\n".join(line[:at].rstrip() for line in lines) + "\n"


def new_lines(table: str, before: str) -> str:
    """The lines of a table that ``before`` lacks, as `--watch` prints changes; all of it if there was none before."""
    known = {" ".join(line.split()) for line in before.splitlines()}
    return "\n".join(line for line in table.splitlines() if line.strip() and " ".join(line.split()) not in known)


def is_in_sync(synced: Collection[str]) -> bool:
    """Whether each of the SYNCED strings, such as ``12/12``, says that no segment is missing."""
    return all(text.split("/")[0] == text.split("/")[-1] for text in synced)


def skipped(merge: JsonObject) -> str:
    """What a MergeJob did not have to touch."""
    files = merge.get("status", {}).get("files", {})
    left_out = files["total"] - files["candidate"]
    return f"the merge skipped {left_out} of {files['total']} files and rewrote {files['rewritten']}."
