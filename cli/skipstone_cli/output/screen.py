"""Prints to standard output and standard error, in colors where they are wanted.

Called by commands only. Rich decides about colors and gets no markup: text of the cluster cannot change how it looks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from skipstone_cli.escaping import clean, clean_line


@dataclass(frozen=True)
class Piece:
    """A piece of a line, and its style in words of Rich, such as ``bold red``."""

    text: str
    style: str = ""


Line = Sequence[Piece]


def make_printable() -> None:
    """Let no character fail to print, whatever the terminal's encoding is."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@dataclass(frozen=True)
class Screen:
    """Where a command prints to."""

    out: Console = field(default_factory=lambda: _console(stderr=False))
    err: Console = field(default_factory=lambda: _console(stderr=True))

    def show(self, lines: Iterable[Line]) -> None:
        """Print lines; each is kept on one line."""
        styles: dict[str, Style] = {}
        segments: list[Segment] = []
        for line in lines:
            for span in line:
                if span.style not in styles:
                    styles[span.style] = Style.parse(span.style)
                segments.append(Segment(clean_line_keeping_ends(span.text), styles[span.style]))
            segments.append(Segment("\n"))
        self.out.print(Segments(segments), end="", soft_wrap=True)
        self.out.file.flush()

    def show_json(self, document: object) -> None:
        """Print a JSON document; characters beyond ASCII are escaped."""
        self.write(json.dumps(document, indent=2) + "\n")

    def write(self, text: str) -> None:
        """Print text as it is, made safe."""
        self.out.file.write(clean(text))
        self.out.file.flush()

    def pass_on(self, document: str) -> None:
        """Print a document that is safe already, in UTF-8 whatever the terminal's encoding is."""
        if hasattr(self.out.file, "reconfigure"):
            self.out.file.reconfigure(encoding="utf-8")
        self.out.file.write(document)
        self.out.file.flush()

    def note(self, text: str) -> None:
        """Say something beside the result, on standard error; nobody is told if that cannot be written."""
        with suppress(OSError):
            self.err.file.write(clean_line(text) + "\n")
            self.err.file.flush()


def clean_line_keeping_ends(text: str) -> str:
    """``text`` made safe and on one line, with the spaces at its ends."""
    return clean(text).replace("\n", " ").replace("\t", " ")


def _console(*, stderr: bool) -> Console:
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)
