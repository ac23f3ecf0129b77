"""Columns whose values are in the names of folders (``day=2026-01-31``), as Hive and Spark lay tables out.

Called by the readers of files. A value is text, percent-encoded, and becomes a value by the rules of text in files. All
files of a source are in folders of the same columns, which no file holds itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import PurePosixPath
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
from skipstone.sources.listing import SourceListing

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


def require_apart(example: str, folders: Iterable[str], columns: Iterable[str]) -> None:
    """Raise BadData (SOURCE_UNREADABLE) for a column that the file ``example`` holds and its folders name, too."""
    held = {plain_name(name): name for name in columns}
    for name in folders:
        if (alike := held.get(plain_name(name))) is not None:
            raise _refused(
                f"'{example}' holds the column '{alike}', and its folder names '{name}': remove {_FIELD} to read the "
                "column of the file, or write the files without it"
            )


def folder_columns(folders: Sequence[str], example: str = "") -> Mapping[str, RawColumn]:
    """The columns by name; with the values of the file ``example``, if it is named."""
    texts = folder_texts(example) if example else {}
    return {
        name: RawColumn(quoted(name), is_text=True, folder=FolderText(texts[name]) if example else None)
        for name in folders
    }


def raw_names(path: str) -> tuple[str, ...]:
    """The names of columns as the folders of ``path`` write them, sorted."""
    return tuple(sorted(part.partition("=")[0] for part in PurePosixPath(path).parent.parts if _is_value(part)))


def _is_value(part: str) -> bool:
    name, equals, _ = part.partition("=")
    return bool(name and equals)


def with_folders(frame: DataFrame, names: Sequence[str], root: str) -> DataFrame:
    """``frame`` of files with a column of text for each of ``names``, as folders below ``root`` write them."""
    path = file_below(root)
    return frame.withColumns({unquote(name): _text(path, name) for name in names})


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
