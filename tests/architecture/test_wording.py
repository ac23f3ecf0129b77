"""Docs, messages, docstrings and comments use the words that a reader of the Kubernetes docs expects.

The list is in CONTRIBUTING.md. It holds words, not taste: each has a plain one that means the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "core",
    "operator",
    "report",
    "spark_apps",
    "cli",
    "local",
    "demo",
    "docs",
    "charts",
    "crds",
    "examples",
    "scripts",
    "tests",
)
SUFFIXES = {".py", ".md", ".yaml", ".tpl", ".txt", ".mk", ""}
LIST = re.compile(r"^\| (?P<instead>[^|]+) \| (?P<plain>[^|]+) \|$", re.MULTILINE)


def banned() -> dict[str, str]:
    """The words of the list in CONTRIBUTING.md, each with what to write in its place."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Words")[1].split("\n## ")[0]
    rows = [row for row in LIST.finditer(section) if not row["instead"].startswith(("Instead", "-"))]
    return {word.strip(): row["plain"].strip() for row in rows for word in row["instead"].split(",")}


def texts() -> Iterator[Path]:
    yield from (path for path in ROOT.glob("*.md") if path.name != "CONTRIBUTING.md")
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in SUFFIXES and path != Path(__file__):
                yield path


def found(text: str, words: dict[str, str]) -> Iterator[str]:
    """``line: word -> plain word`` for each word of the list."""
    pattern = re.compile(
        r"(?<![\w-])(" + "|".join(sorted(words, key=len, reverse=True)) + r")(?![\w(=-])", re.IGNORECASE
    )
    for number, line in enumerate(text.splitlines(), start=1):
        yield from (f"{number}: {match[0]} -> {words[match[0].lower()]}" for match in pattern.finditer(line))


def test_the_list_is_read() -> None:
    assert {"mend", "anew", "at work", "behaviour"} <= banned().keys()
    assert list(found("It mends nothing.\nThe driver is at work.", banned())) == [
        "1: mends -> fixes",
        "2: at work -> running, in progress",
    ]


def room(path: Path) -> str:
    """The folder at the top that holds ``path``; empty for a file at the top."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("folder", (*FOLDERS, ""))
def test_texts_use_plain_words(folder: str) -> None:
    words = banned()
    paths = [path for path in texts() if room(path) == folder]
    assert paths
    problems = {str(path.relative_to(ROOT)): list(found(path.read_text(errors="replace"), words)) for path in paths}
    assert {path: lines for path, lines in problems.items() if lines} == {}
