"""Fields within columns of a source, such as ``after.id``: found in what files say of themselves.

Called by the readers of each format for the names that a merge may mean so. Only fields of structs have names: lists
and maps have items.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pyiceberg.types import IcebergType
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from skipstone_core.errors import BadSpec
from skipstone_core.language.paths import join_path, like_hint, split_path
from skipstone_core.reasons import Reason


class Branch(Protocol):
    """A column or field with the ``fields`` in it: none but for structs, None where files do not say."""

    @property
    def name(self) -> str:
        """Its own name."""

    @property
    def fields(self) -> Sequence[Branch] | None:
        """What is in it."""


AnyBranch = TypeVar("AnyBranch", bound=Branch)


@dataclass(frozen=True)
class Named:
    """What a merge names. ``fields``: names that may be paths, each with the field of the resource that says it first.

    ``needed``: the columns and fields that every file must have; None: all. ``nested``: the types of the table's lists,
    maps and structs by the columns that feed them: no other such column is read.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    needed: Collection[str] | None = None
    nested: Mapping[str, IcebergType] = field(default_factory=dict)

    def found(self, columns: Sequence[AnyBranch]) -> Iterator[tuple[str, AnyBranch]]:
        """The names that are fields within ``columns``, each with what it leads to, as far as files say.

        Raises BadSpec as ``find_field`` does, of what may be missing only for columns that are no structs.
        """
        for name, where in self.fields.items():
            may_lack = self.needed is not None and name not in self.needed
            if branches := find_field(name, where, columns, may_lack=may_lack):
                yield name, branches[-1]


def find_field(name: str, where: str, columns: Sequence[AnyBranch], *, may_lack: bool = False) -> list[AnyBranch]:
    """The column and the fields that lead to ``name``, as far as files say; empty for what is a column as it stands.

    ``may_lack``: empty for a field that does not exist, too. Raises BadSpec (SOURCE_COLUMN_MISSING) naming ``where``.
    """
    if any(column.name == name for column in columns):
        return []
    parts, branches, level = split_path(name), list[AnyBranch](), columns
    for at, part in enumerate(parts):
        branch = next((candidate for candidate in level if candidate.name == part), None)
        if branch is None and may_lack:
            return []
        if branch is None:
            what = f"field {part!r} in {join_path(parts[:at])!r}" if at else f"column {part!r}"
            raise _missing(
                f"the source has no {what}: {like_hint(part, (candidate.name for candidate in level))}", where
            )
        branches.append(branch)
        if branch.fields is None:
            break
        if not branch.fields and at + 1 < len(parts):
            inside = f"{join_path(parts[: at + 1])!r} is no struct in the source, so it has no field {parts[at + 1]!r}"
            raise _missing(f"{inside}: name the column itself, or fields of structs", where)
        level = branch.fields  # type: ignore[assignment]
    return branches


def _missing(message: str, where: str) -> BadSpec:
    return BadSpec(Reason.SOURCE_COLUMN_MISSING, message, field=where)


def unloaded(name: str, where: str) -> BadSpec:
    """What is said of a field whose type is not loaded."""
    message = f"field {name!r} of the source is of a type that is not loaded: name a field of a plain type"
    return BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field=where)


def struct_types(leaves: Mapping[tuple[str, ...], str]) -> dict[str, str]:
    """The Spark type of each column that holds some of ``leaves`` (paths to their types), with no other field."""
    below: dict[str, dict[tuple[str, ...], str]] = {}
    for path, kind in leaves.items():
        below.setdefault(path[0], {})[path[1:]] = kind
    return {name: inside[()] if () in inside else _struct(struct_types(inside)) for name, inside in below.items()}


def _struct(fields: Mapping[str, str]) -> str:
    return f"struct<{', '.join(f'{_quoted(name)}: {kind}' for name, kind in fields.items())}>"


def with_fields(frame: DataFrame, names: Iterable[str]) -> DataFrame:
    """``frame`` with a column for each of the paths ``names``, called as they are."""
    columns = {name: F.expr(".".join(map(_quoted, split_path(name)))) for name in names}
    return frame.withColumns(columns) if columns else frame


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
