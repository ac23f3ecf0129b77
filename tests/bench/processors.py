"""Processor seconds of the parts of an embedded cluster, which are processes of this machine.

Wall time on a machine that does other work says little; processor time says where a merge's work is done.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
#: What shows in the command line of each part. Processes that end in between count through the parent that waits.
PARTS = {
    "driver": "skipstone.apps.keep",
    "operator": "skipstone_operator",
    "api server": "kube-apiserver",
    "etcd": "etcd",
    "node": "kubelet",
    "containers": "containerd",
    "controllers": "kube-controller-manager",
}
#: In /proc/PID/stat, after the name: ticks in user and in system mode, of the process and of its ended children.
_TICKS = slice(11, 15)


def read_processors() -> Counter[str]:
    """Processor seconds so far, by part."""
    tick = os.sysconf("SC_CLK_TCK")
    spent: Counter[str] = Counter()
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                part = _part_of((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if part:
                    spent[part] += sum(map(int, fields[_TICKS])) / tick
    return spent


def _part_of(command: str) -> str:
    return next((part for part, mark in PARTS.items() if mark in command), "")


def spent_each(before: Counter[str], merges: int) -> dict[str, float]:
    """Processor milliseconds of each part for one of so many merges, since ``before``."""
    now = read_processors()
    return {part: round(1000 * (now[part] - before[part]) / merges, 1) for part in PARTS}
