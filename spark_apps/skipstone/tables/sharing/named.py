"""Files that are about to be deleted, looked for in what other tables name.

Used by drops, expiry and the search for orphan files. Paths are compared in every form that engines write, without the
links of a volume. Must not delete.
"""

from __future__ import annotations

import os
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from skipstone_core.maintenance.orphans import name_of, names_meant

from skipstone.compat.avro.whole import NotWholeError
from skipstone.parallel import at_once
from skipstone.tables.sharing.places import unreadable
from skipstone.tables.sharing.reach import read_reach
from skipstone.tables.storage import plain_location

#: How often a table is read again whose files went while they were read, since it was changed.
_READS = 3


class NamedFiles:
    """Files that are about to be deleted."""

    def __init__(self, paths: Iterable[str]) -> None:
        """``paths``: as metadata has them."""
        self._by_form: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for path in paths:
            for form in _forms(path):
                self._by_form[name_of(form)][form] = path

    def find_use(self, other: Table) -> str | None:
        """A clause that says which of the files the table ``other`` names in a snapshot that it retains; else None.

        Raises DependencyUnavailable when the metadata, a manifest list or a manifest of ``other`` cannot be read.
        """
        used = sorted(self.meant_by(_reached(other))) if self._by_form else []
        if not used:
            return None
        more = f" and {len(used) - 1} more of its files" if len(used) > 1 else ""
        return f"{'.'.join(other.name())} uses its file {used[0]}{more}"

    def meant_by(self, paths: Iterable[str]) -> set[str]:
        """Those of the files that ``paths``, which another table names, may mean."""
        return {ours for path, names in self._likely(paths) for ours in self._same(path, names)}

    def names_used_by(self, other: Table) -> set[str]:
        """The names of those of the files whose name one has that ``other`` names. Raises as ``find_use``."""
        return self.names_meant_by(_reached(other)) if self._by_form else set()

    def names_meant_by(self, paths: Iterable[str]) -> set[str]:
        """The names of the files that have the name of one that ``paths`` may mean, in whatever folder it is."""
        return {name for _, names in self._likely(paths) for name in names}

    def _likely(self, paths: Iterable[str]) -> list[tuple[str, frozenset[str]]]:
        """Those of ``paths`` that mean a file with the name of one of these, and these names."""
        known = list(paths)
        ends = at_once(_link_end, known) if self._are_local else [""] * len(known)
        meant = ((path, (names_meant(path) | {name_of(end)}) & self._by_form.keys())
                 for path, end in zip(known, ends, strict=True))  # fmt: skip
        return [(path, frozenset(names)) for path, names in meant if names]

    @property
    def _are_local(self) -> bool:
        return any(form.startswith("/") for forms in self._by_form.values() for form in forms)

    def _same(self, path: str, names: Iterable[str]) -> set[str]:
        folder, tail = path[: path.rfind("/") + 1], relative_part(path)
        forms = _forms(path).union(*(_forms(f"{folder}{name}") for name in names_meant(path)))
        alike = [(form, ours) for name in names for form, ours in self._by_form[name].items()]
        return {ours for form, ours in alike if form in forms or (tail and form.endswith(f"/{tail}"))}


def _forms(path: str) -> set[str]:
    """The places that ``path`` may mean; on a volume also without the links on the way."""
    plain = {plain_location(path), unquote(plain_location(path))}
    return plain | {os.path.realpath(place) for place in plain if place.startswith("/")}


def _link_end(path: str) -> str:
    """Where a file leads that is a link to another one; else nothing. Links to folders change no name."""
    plain = plain_location(path)
    places: Sequence[str] = (plain, unquote(plain)) if plain.startswith("/") else ()
    return next((os.path.realpath(place) for place in places if Path(place).is_symlink()), "")


def relative_part(path: str) -> str:
    """The part of a path that says no root, below whatever it is meant; empty for one that does."""
    rest = path[len("file:") :] if path.lower().startswith("file:") else path
    if rest.startswith("/") or "://" in rest:
        return ""
    parts = posixpath.normpath(rest).split("/")
    return "/".join(part for part in parts if part != "..")


def _reached(table: Table) -> set[str]:
    """All paths that ``table`` names now, or named a moment ago. Raises DependencyUnavailable."""
    name, known = table.name(), table
    for attempt in range(_READS):
        try:
            return read_reach(known).paths()
        except (OSError, NotWholeError) as error:
            try:
                now = table.catalog.load_table(name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return set()  # dropped
            if now.metadata_location == known.metadata_location or attempt == _READS - 1:
                raise unreadable(".".join(name), error) from error
            known = now
    raise AssertionError(_READS)
