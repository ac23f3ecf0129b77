"""FileColumns of a statement as a MergeJob names them: by side, with paths into structs of the source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skipstone_core.language.paths import join_path
from sqlglot import exp

from skipstone_cli.translating.refusals import Untranslatable, quoted

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Words of the grammar, which are quoted wherever they are names.
_WORDS = frozenset(
    (
        "and",
        "as",
        "between",
        "cast",
        "date",
        "false",
        "in",
        "is",
        "like",
        "nan",
        "not",
        "null",
        "or",
        "timestamp",
        "true",
    )
)
SOURCE, TARGET = "source", "target"
#: The side whose columns are written by their names alone, as in ``where`` of a source.
ROWS = ""


@dataclass(frozen=True)
class FileColumns:
    """The columns of a relation by the paths of the files that they come from.

    ``named``: those that a SELECT lists. ``rest``: whether all others of the files are there, too. ``hidden``: names
    that are not columns of the files, or are left out; ``ranks``: those of them that number the rows of a key.
    """

    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rest: bool = True
    hidden: frozenset[str] = frozenset()
    ranks: frozenset[str] = frozenset()

    def lists(self, name: str) -> bool:
        """Return whether a SELECT lists the column ``name``."""
        return name.lower() in {column.lower() for column in (*self.named, *self.hidden)}

    def path(self, name: str) -> tuple[str, ...]:
        """Where the column ``name`` is in the files. Raises Untranslatable."""
        alike = {column.lower(): column for column in self.named}
        if name in self.named or name.lower() in alike:
            return self.named[name if name in self.named else alike[name.lower()]]
        if name.lower() in self.ranks:
            raise Untranslatable(
                f"{name!r} numbers the rows of a key, and is not a column of the files: keep the first of each key by "
                f"WHERE {name} = 1 in the subquery, and leave it out here"
            )
        if name.lower() in self.hidden:
            raise Untranslatable(f"{name!r} is not a column of the files: leave it out")
        if not self.rest:
            raise Untranslatable(f"the subquery has no column {name!r}: name one of {', '.join(self.named)}")
        return (name,)


@dataclass(frozen=True)
class Side:
    """The table or the source. ``qualifiers``: what stands before its columns, as parts without case."""

    name: str
    qualifiers: Sequence[tuple[str, ...]]
    columns: FileColumns = FileColumns()

    def rest_of(self, parts: Sequence[str]) -> tuple[str, ...] | None:
        """``parts`` without the qualifier; None when they do not begin with one."""
        for qualifier in sorted(self.qualifiers, key=len, reverse=True):
            if len(parts) > len(qualifier) and tuple(part.lower() for part in parts[: len(qualifier)]) == qualifier:
                return tuple(parts[len(qualifier) :])
        return None


@dataclass(frozen=True)
class Name:
    """A column: its side, and its path in the files of the source or in the table."""

    side: str
    path: tuple[str, ...]

    @property
    def field(self) -> str:
        """As fields of a MergeJob write it, such as those of keys."""
        return join_path(self.path)

    @property
    def text(self) -> str:
        """As conditions and expressions write it."""
        return ".".join((*([self.side] if self.side else []), *map(_quoted_name, self.path)))


@dataclass(frozen=True)
class Scope:
    """The sides whose columns a part of the statement may name. ``there``: both, to tell what is out of place."""

    sides: Sequence[Side]
    there: Sequence[Side]

    def find(self, column: exp.Expr) -> Name:
        """The column that an expression names. Raises Untranslatable."""
        parts = _parts(column)
        named = [(side, rest) for side in self.there if (rest := side.rest_of(parts)) is not None]
        if len(named) > 1:
            raise Untranslatable(f"{quoted(column)} may be of both sides: give the table and the source two aliases")
        if named:
            side, rest = named[0]
            if side not in self.sides:
                raise Untranslatable(
                    f"{quoted(column)} is of the {_WORD[side.name]}, which has no row here: leave it out"
                )
            return _name(side, rest)
        if len(self.sides) > 1 and (listing := next((side for side in self.sides if not side.columns.rest), None)):
            # a name that both sides have is refused by engines, so one that this side lists is of this side
            other = next(side for side in self.sides if side is not listing)
            return _name(listing if listing.columns.lists(parts[0]) else other, parts)
        if len(self.sides) > 1:
            aliases = " or ".join(".".join((*side.qualifiers[0], parts[-1])) for side in self.sides if side.qualifiers)
            raise Untranslatable(f"{quoted(column)} does not say whose column it is: write {aliases}")
        return _name(self.sides[0], parts)


_WORD = {SOURCE: "source", TARGET: "table"}


def is_column(node: exp.Expr) -> bool:
    """Return whether an expression is a column or a field within one."""
    return isinstance(node, exp.Column | exp.Dot) and not isinstance(node.this, exp.Star)


def _name(side: Side, parts: Sequence[str]) -> Name:
    if side.name == TARGET:
        return Name(TARGET, tuple(parts))
    first, *rest = parts
    return Name(side.name, (*side.columns.path(first), *rest))


def _parts(column: exp.Expr) -> tuple[str, ...]:
    if isinstance(column, exp.Dot):
        if not isinstance(column.expression, exp.Identifier):
            raise Untranslatable(f"{quoted(column)} is not a column: name a column or a field within one")
        return (*_parts(column.this), str(column.expression.name))
    if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
        raise Untranslatable(f"{quoted(column)} is not a column: name a column or a field within one")
    return tuple(str(part.name) for part in column.parts)


def _quoted_name(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.lower() not in _WORDS:
        return name
    return f"`{name.replace('`', '``')}`"
