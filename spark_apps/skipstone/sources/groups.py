"""Source files that look alike, and one Spark frame of their raw columns.

Made by the readers of each format and joined into one typed frame by ``reading``. Plain data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.types import BinaryType, IcebergType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from skipstone.sources.typed.filetypes import FileType


@dataclass(frozen=True)
class FolderText:
    """The text of a column in all rows of a file, which the name of its folder says; None for null."""

    text: str | None


@dataclass(frozen=True)
class RawColumn:
    """A column of the group's frame called ``ref``: text, or of ``file_type`` (None: it cannot be loaded).

    ``is_field``: in the files it is a field within a column. ``is_empty``: its file says that it holds no value, so
    that it feeds every type. ``is_unnamed``: the files give it no name. ``is_nested_text``: it is a list, map or struct
    whose leaves are text.
    ``shown``: its type for people, where ``file_type`` does not say it. ``folder``: where the one file of the group is.
    ``text_type``: what its text stands for, where that is known.
    """

    ref: str
    file_type: FileType | None = None
    is_text: bool = False
    is_field: bool = False
    is_empty: bool = False
    is_unnamed: bool = False
    is_nested_text: bool = False
    shown: str = ""
    folder: FolderText | None = None
    text_type: IcebergType | None = None

    @property
    def is_null(self) -> bool:
        """Return whether it holds no value and tells no type that is loaded."""
        return self.is_empty and self.file_type is None

    @property
    def is_escaped(self) -> bool:
        """Return whether its text has an escape for each byte of a value, as logs of Delta tables write binary."""
        return isinstance(self.text_type, BinaryType)


@dataclass(frozen=True, kw_only=True)
class ColumnGroup:
    """Files with the same columns. ``columns``: by exact source name; ``example``: one of the files.

    ``instead``: pairs of like names of which some record has a value under the first and lacks the second.
    """

    columns: Mapping[str, RawColumn]
    example: str
    instead: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, kw_only=True)
class RawGroup(ColumnGroup):
    """Their rows as a frame.

    ``frame`` has the raw columns, CORRUPT (text of rows that could not be cut into columns, or null) and FILE (the
    file's URL). ``record``: a row as text. ``corrupt``: what such rows are. ``tells_absent``: rows may lack columns,
    and ABSENT of the frame has a character for each of ``columns``: 1 where the row lacks it, else 0.
    """

    frame: DataFrame
    record: Column
    corrupt: str = "the row cannot be read"
    tells_absent: bool = False


def is_text(groups: Iterable[ColumnGroup], name: str) -> bool:
    """Return whether the column ``name`` is text in a group."""
    return any((column := group.columns.get(name)) is not None and column.is_text for group in groups)


CORRUPT = "_skipstone_corrupt"
ABSENT = "_skipstone_absent"
URL = "_skipstone_url"
#: Real file names may hold these; without this Spark would take them for patterns.
NO_GLOB = {"__globPaths__": "false"}


def quoted(name: str) -> str:
    """``name`` as a reference that Spark resolves exactly."""
    return f"`{name.replace('`', '``')}`"


def unquoted(reference: str) -> str:
    """The name of the column that a reference means, quoted or not."""
    return reference[1:-1].replace("``", "`") if reference.startswith("`") else reference


def with_url(frame: DataFrame) -> DataFrame:
    """``frame``, as Spark reads it from files, with URL; a column of the files may have the name of Spark's own one."""
    return frame.withColumn(URL, frame.metadataColumn("_metadata").getField("file_path"))


def file_below(root: str) -> Column:
    """The path relative to the address ``root`` out of the file's URL in URL, in which a plus sign means itself."""
    path = F.try_url_decode(F.regexp_replace(F.col(URL), r"\+", "%2B"))
    scheme, _, place = root.partition(":")
    return F.regexp_replace(path, rf"^{scheme}:/*\Q{place.strip('/')}\E/", "")
