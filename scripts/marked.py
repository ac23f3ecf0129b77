"""Generated parts of pages that are written by hand otherwise. Two comments enclose such a part."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MarkedPart:
    """The part of ``page`` between the comments ``begin`` and ``end``, generated from ``source``."""

    page: Path
    begin: str
    end: str
    source: str

    def write(self, body: str, argv: list[str]) -> int:
        """Write ``body`` between the comments; with ``--check`` in ``argv`` compare only. The exit code."""
        text = self.page.read_text()
        start, end = text.index(self.begin) + len(self.begin), text.index(self.end)
        written = f"{text[:start]}\n{body}\n{text[end:]}"
        if "--check" not in argv:
            self.page.write_text(written)
        elif written != text:
            print(f"{self.page.name} differs from {self.source}: run `make generate`", file=sys.stderr)
            return 1
        return 0
