"""Code blocks of the documentation, and what `blocks.yaml` beside this file says of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
ACCOUNTS = Path(__file__).with_name("blocks.yaml")
#: What a reader runs; sh: commands; console: commands behind `$ `, with what they print.
RUN = ("sh", "console", "python")
#: What a reader applies.
APPLIED = ("yaml",)
#: What a reader only reads.
READ = ("text", "json", "sql", "properties", "java")
#: The closing fence stands where the opening one does.
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One code block. ``page``: its path below the repository; ``line``: of its opening fence."""

    page: str
    line: int
    language: str
    text: str

    def commands(self) -> str:
        """What a shell is given of it: of a console, only what stands behind the prompt."""
        if self.language != "console":
            return self.text
        return "".join(line[2:] for line in self.text.splitlines(keepends=True) if line.startswith("$ "))


@dataclass(frozen=True)
class Change:
    """A place of a page that cannot be run here as it is printed."""

    page: str
    find: str
    put: str
    why: str


def pages() -> list[str]:
    """All pages that people read: those of the site, and those beside examples."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def blocks_of(page: str) -> list[Block]:
    """The code blocks of ``page``, in order."""
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["language"].strip(), found["text"])
        for found in FENCE.finditer(text)
    ]


class Accounts:
    """What is followed on a cluster, what tests run, and what nobody runs, with the reason."""

    def __init__(self) -> None:
        """Read `blocks.yaml`."""
        told: dict[str, list[dict[str, Any]]] = yaml.safe_load(ACCOUNTS.read_text())
        self.followed: list[str] = [entry["page"] for entry in told["followed"]]
        self.changes = [Change(**entry) for entry in told["changed"]]
        self.tested = told["tested"]
        self.not_run = told["not run"]

    def is_left_out(self, block: Block) -> bool:
        """Whether someone else runs ``block``, or nobody."""
        return any(_fits(entry, block) for entry in (*self.tested, *self.not_run))

    def unaccounted(self) -> Iterator[Block]:
        """Blocks that would be run by a reader and are in no list."""
        for page in pages():
            for block in blocks_of(page):
                if block.language in RUN and page not in self.followed and not self.is_left_out(block):
                    yield block

    def unused(self) -> Iterator[str]:
        """Entries of the lists that fit no block."""
        everything = [block for page in pages() for block in blocks_of(page)]
        for entry in (*self.tested, *self.not_run):
            if not any(_fits(entry, block) for block in everything):
                yield f"{entry['page']}: {entry.get('begins', entry.get('language'))}"
        for change in self.changes:
            if not any(block.page == change.page and change.find in block.text for block in everything):
                yield f"{change.page}: {change.find}"


def _fits(entry: dict[str, Any], block: Block) -> bool:
    if entry["page"] != block.page or entry.get("language", block.language) != block.language:
        return False
    return block.text.startswith(str(entry.get("begins", "")))
