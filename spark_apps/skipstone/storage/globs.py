"""Patterns of paths, judged name by name, as ``pathlib.Path.glob`` judges them.

For storages that have no folders to walk through. Must not read a storage.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath

from propcache.api import cached_property

_MAGIC = frozenset("*?[")
_ANY_DEPTH = "**"

#: How far names have come: places in the pattern that may come next.
Reached = frozenset[int]


def has_magic(pattern: str) -> bool:
    """Return whether ``pattern`` may name something else than itself."""
    return bool(_MAGIC & set(pattern))


@dataclass(frozen=True)
class Glob:
    """A pattern of ``*``, ``?``, ``[...]`` and ``**``, which stands for any number of folders.

    All places that names reach are followed together, so that no pattern takes long.
    """

    pattern: str

    @cached_property
    def _parts(self) -> tuple[str, ...]:
        return PurePosixPath(self.pattern).parts

    @cached_property
    def _tests(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(fnmatch.translate(part)) for part in self._parts)

    @property
    def only_folders(self) -> bool:
        """Return whether files are left out: the pattern ends with ``**`` or with a slash."""
        return self.pattern.endswith("/") or self._parts[-1] == _ANY_DEPTH

    @property
    def fixed(self) -> str:
        """The folder below which all is that the pattern names; empty for the root."""
        return "/".join(takewhile(lambda part: not has_magic(part), self._parts[:-1]))

    def begin(self, folder: str = "") -> Reached:
        """What is reached at the root, or at ``folder``."""
        reached = frozenset(self._skipping(0))
        for name in PurePosixPath(folder).parts:
            reached = self.step(reached, name)
        return reached

    def step(self, reached: Reached, name: str) -> Reached:
        """What is reached one name deeper; nothing when no path below can fit."""
        return frozenset(after for place in reached for after in self._taken(place, name))

    def fits(self, reached: Reached) -> bool:
        """Return whether the pattern names what was come to."""
        return len(self._parts) in reached

    def goes_on(self, reached: Reached) -> bool:
        """Return whether the pattern may name something below."""
        return any(place < len(self._parts) for place in reached)

    def _taken(self, place: int, name: str) -> Iterator[int]:
        if place < len(self._parts):
            if self._parts[place] == _ANY_DEPTH:
                yield from self._skipping(place)
            elif self._tests[place].fullmatch(name):
                yield from self._skipping(place + 1)

    def _skipping(self, place: int) -> Iterator[int]:
        yield place
        while place < len(self._parts) and self._parts[place] == _ANY_DEPTH:
            place += 1
            yield place
