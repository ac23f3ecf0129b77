"""Fields within columns of a source, such as ``after.id``: found in what files say of themselves.

Called by the readers of each format for the names that a merge may mean so. Only fields of structs have names: lists
and maps have items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from skipstone_core.errors import BadSpec
from skipstone_core.language.paths import join_path, like_hint, split_path
from skipstone_core.reasons import Reason

#: Names that may be paths, each with the field of the resource that says it first.
Named = Mapping[str, str]


class Branch(Protocol):
    """A column or field with the ``fields`` in it: none but for structs, None where files do not say."""

    @property
    def name(self) -> str:
        """Its own name."""

    @property
    def fields(self) -> Sequence[Branch] | None:
        """What is in it."""


AnyBranch = TypeVar("AnyBranch", bound=Branch)


def find_field(name: str, where: str, columns: Sequence[AnyBranch]) -> list[AnyBranch]:
    """The column and the fields that lead to ``name``, as far as files say; empty for what is a column as it stands.

    Raises BadSpec (SOURCE_COLUMN_MISSING) that names ``where`` for a field that does not exist.
    """
    if any(column.name == name for column in columns):
        return []
    parts, found, level = split_path(name), list[AnyBranch](), columns
    for at, part in enumerate(parts):
        one = next((one for one in level if one.name == part), None)
        if one is None:
            what = f"field {part!r} in {join_path(parts[:at])!r}" if at else f"column {part!r}"
            raise _missing(f"the source has no {what}: {like_hint(part, (one.name for one in level))}", where)
        found.append(one)
        if one.fields is None:
            break
        if not one.fields and at + 1 < len(parts):
            inside = f"{join_path(parts[: at + 1])!r} is no struct in the source, so it has no field {parts[at + 1]!r}"
            raise _missing(f"{inside}: name the column itself, or fields of structs", where)
        level = one.fields  # type: ignore[assignment]
    return found


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
    found = {name: F.expr(".".join(map(_quoted, split_path(name)))) for name in names}
    return frame.withColumns(found) if found else frame


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
