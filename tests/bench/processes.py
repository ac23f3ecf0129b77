"""What processes and their children use: processor seconds, and memory at its peak. Linux only: read from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
#: Seconds between two looks at how much memory processes hold.
_INTERVAL = 0.1


@dataclass
class Peak:
    """The most bytes that processes held at a time (RSS; pages that they share count for each of them)."""

    size: int = 0


def cpu_seconds(root: int | None = None) -> float:
    """Processor seconds of a process (this one) and all that it started: what else a machine does is not among them."""
    return sum(ticks for ticks, _ in _family(root or os.getpid()).values()) / os.sysconf("SC_CLK_TCK")


def resident_bytes(root: int) -> int:
    """Bytes of memory that a process and all that it started hold now."""
    return sum(pages for _, pages in _family(root).values()) * PAGE


@contextmanager
def watching_children() -> Iterator[Peak]:
    """Inside the block, look at what the children of this process hold."""
    peak, ended = Peak(), threading.Event()

    def watch() -> None:
        while not ended.wait(_INTERVAL):
            family = _family(os.getpid())
            family.pop(os.getpid(), None)
            peak.size = max(peak.size, sum(pages for _, pages in family.values()) * PAGE)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def _family(root: int) -> dict[int, tuple[int, int]]:
    """Clock ticks, with those of children that have ended, and pages of memory: of a process and its descendants."""
    parents: dict[int, int] = {}
    used: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid], used[pid] = int(fields[1]), (sum(map(int, fields[11:15])), int(fields[21]))
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: used[pid] for pid in found if pid in used}
