"""Columns whose values are in the names of folders (``day=2026-01-31``), as Hive and Spark lay tables out.

Called by the readers of files. A value is text, percent-encoded, and becomes a value by the rules of text in files. All
files of a source are in folders of the same columns, which no file holds itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import PurePosixPath
from typing import Protocol, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyiceberg.types import BooleanType, DateType, IcebergType, IntegerType, LongType, StringType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from skipstone_core.errors import BadData
from skipstone_core.merging.unused import plain_name
from skipstone_core.reasons import Reason

from skipstone.files.registering.folders import HIVE_NULL, folder_values
from skipstone.sources.groups import FolderText, RawColumn, file_below, quoted
from skipstone.sources.listing import PathValues, SourceListing

_FIELD = "source.hivePartitions"
_NOT_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: What readers of text put in the place of bytes that they cannot read: a bad row.
_REPLACEMENT = "\ufffd"


def folder_texts(path: str) -> Mapping[str, str | None]:
    """The text of each column that the folders of ``path`` name; None for null.

    Raises BadData (SOURCE_UNREADABLE) for a column that is named twice, and for a name that is not percent-encoded
    UTF-8.
    """
    for part in PurePosixPath(path).parent.parts:
        if "=" in part:
            _require_encoded(part, path)
    return folder_values(path)


def _require_encoded(part: str, path: str) -> None:
    try:
        unquote(part, errors="strict")
        is_encoded = not _NOT_ENCODED.search(part)
    except UnicodeDecodeError:
        is_encoded = False
    if not is_encoded:
        raise _refused(
            f"the folder '{part}' of '{path}' is not percent-encoded UTF-8: rename it, and write a percent sign as %25"
        )


def find_folders(listing: SourceListing) -> tuple[str, ...]:
    """The columns that the folders of every file name, sorted; none without files.

    Raises BadData (SOURCE_UNREADABLE) for a file in other folders than the first one, and as ``folder_texts`` does.
    """
    names: frozenset[str] | None = None
    for file in listing.files:
        columns = frozenset(folder_texts(file.path))
        names = columns if names is None else names
        if not columns:
            raise _refused(
                f"no folder of '{file.path}' has a name such as day=2026-01-31: move the file to such a folder, or "
                f"remove {_FIELD}"
            )
        if columns != names:
            first, other = sorted(names ^ columns)[0], listing.files[0].path
            having, lacking = (file.path, other) if first in columns else (other, file.path)
            raise _refused(
                f"'{having}' is in a folder '{first}=…' and '{lacking}' is not: load files with other folders by a job "
                "of their own"
            )
    return tuple(sorted(names or ()))


class _HasName(Protocol):
    """A column of a file."""

    @property
    def name(self) -> str:
        """Its name."""


_Held = TypeVar("_Held", bound=_HasName)


def without_values(example: str, values: PathValues, columns: Iterable[_Held]) -> tuple[_Held, ...]:
    """The ``columns`` of the file ``example`` that ``values`` do not have.

    Raises BadData (SOURCE_UNREADABLE) for one that both have, if the file must not.
    """
    beside = {plain_name(name): name for name in values.texts[example]}
    kept = []
    for column in columns:
        name = beside.get(plain_name(column.name))
        if name is None:
            kept.append(column)
        elif values.way_out:
            raise BadData(
                Reason.SOURCE_UNREADABLE,
                f"'{example}' holds the column '{column.name}', and its folder names '{name}': {values.way_out}",
                field=values.spec_field,
            )
    return tuple(kept)


def folder_columns(
    values: PathValues, texts: Mapping[str, str | None], *, of_one: bool = False
) -> Mapping[str, RawColumn]:
    """The columns by name, of a group of files with one of these ``texts``; with the texts if it is ``of_one`` file."""
    return {
        name: RawColumn(
            quoted(name), is_text=True, folder=FolderText(text) if of_one else None, text_type=values.types.get(name)
        )
        for name, text in texts.items()
    }


@dataclass(frozen=True)
class ValueSource:
    """Where the values of files are: in folders of these ``names``, as they are written, or the same in all files."""

    names: tuple[str, ...] = ()
    texts: tuple[tuple[str, str | None], ...] = ()


def value_source(path: str, texts: Mapping[str, str | None]) -> ValueSource:
    """Where the values ``texts`` of the file at ``path`` are."""
    parts = (part.partition("=")[0] for part in PurePosixPath(path).parent.parts if _is_value(part))
    names = tuple(sorted(name for name in parts if unquote(name) in texts))
    return ValueSource(names=names) if _says(path, texts) else ValueSource(texts=tuple(sorted(texts.items())))


def _says(path: str, texts: Mapping[str, str | None]) -> bool:
    """Return whether the folders of ``path`` hold all of ``texts``."""
    try:
        held = folder_texts(path)
    except BadData:
        return False
    return all(name in held and held[name] == text for name, text in texts.items())


def _is_value(part: str) -> bool:
    name, equals, _ = part.partition("=")
    return bool(name and equals)


def with_values(frame: DataFrame, source: ValueSource, root: str) -> DataFrame:
    """``frame`` of files with columns of text for the values of ``source``, in folders below the address ``root``."""
    path = file_below(root)
    by_path = {unquote(name): _text(path, name) for name in source.names}
    return frame.withColumns({**by_path, **{name: F.lit(text).cast("string") for name, text in source.texts}})


def _text(path: Column, name: str) -> Column:
    raw = F.regexp_extract(path, f"(?:^|/){re.escape(name)}=([^/]*)/", 1)
    return F.when(raw != HIVE_NULL, F.url_decode(F.regexp_replace(raw, r"\+", "%2B")))


def plain_value(text: str | None, kind: IcebergType) -> pa.Scalar | None:
    """A folder's text as a value, where it is what Spark makes of it for certain; None for what Spark has to read."""
    match kind:
        case StringType() if text is None or _REPLACEMENT not in text:
            return pa.scalar(text, pa.string())
        case IntegerType() | LongType() if text is None or _is_whole(text, bits=32 if kind == IntegerType() else 64):
            return pa.scalar(None if text is None else int(text), pa.int64())
        case BooleanType() if text in (None, "true", "false"):
            return pa.scalar(None if text is None else text == "true", pa.bool_())
        case DateType() if text is None or _is_day(text):
            return pa.scalar(None if text is None else date.fromisoformat(text), pa.date32())
    return None


def _is_whole(text: str, bits: int) -> bool:
    most = 1 << bits - 1
    return bool(_WHOLE.fullmatch(text)) and -most <= int(text) < most


def _is_day(text: str) -> bool:
    try:
        return bool(_DAY.fullmatch(text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _refused(message: str) -> BadData:
    return BadData(Reason.SOURCE_UNREADABLE, message, field=_FIELD)
