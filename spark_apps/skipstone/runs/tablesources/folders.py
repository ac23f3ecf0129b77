"""Which files of partitioned folders a job reads: those in whose folders ``hivePartitions.where`` is true.

Called by the intake before the files are pinned. Names of folders only are read, no file is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DateType, IcebergType, NestedField, StringType, TimestampType
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.predicates import check_types
from skipstone_core.reasons import Reason

from skipstone.files.registering.folders import as_value
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone.runs.registering.places import SourcePlace, require_no_log, require_no_table
from skipstone.sources.columns import declared_types, fed_types
from skipstone.sources.listing import PathValues, SourceListing
from skipstone.sources.typed.folders import find_folders, folder_texts
from skipstone.tables.arrow import arrow_schema

FIELD = "source.hivePartitions"
_WHERE = f"spec.{FIELD}.where"
_WAY_OUT = f"remove {FIELD} to read the column of the file, or write the files without it"


@dataclass(frozen=True, kw_only=True)
class FilePartitions:
    """Values of columns by the path of a file. ``field``: of the condition on them, for messages."""

    texts: Mapping[str, Mapping[str, str | None]]
    types: Mapping[str, IcebergType]
    field: str


def choose_folders(listing: SourceListing, source: SourceSpec, table: Table) -> SourceListing:
    """The files of ``listing`` in whose folders the condition of ``source`` is true; all without one.

    Files of Parquet only: those of a table with a log are refused, since some of them may be dead.

    ``table``: the one that is written. Raises BadSpec for a condition on other columns, and for types of columns that
    no folder names, BadData (SOURCE_UNREADABLE) for folders that cannot be read, hold another type, or are of a table
    whose metadata says which files are live.
    """
    if source.format is not SourceFormat.PARQUET or not listing.files:
        return listing
    if source.hive_partitions is None:
        return require_no_log(listing)
    require_no_table(listing, SourcePlace("", table))
    names = find_folders(listing)
    _require_known(source, names)
    if source.hive_partitions.where is None:
        return listing
    types = _types(source, table.schema(), names)
    texts = {file.path: folder_texts(file.path) for file in listing.files}
    taken = is_true_on(source.hive_partitions.where, FilePartitions(texts=texts, types=types, field=_WHERE))
    return replace(listing, files=tuple(file for file in listing.files if file.path in taken))


def with_folder_values(listing: SourceListing, source: SourceSpec) -> SourceListing:
    """``listing`` with the values in the names of folders, if ``source`` asks for them. Raises as ``find_folders``."""
    if source.hive_partitions is None:
        return listing
    find_folders(listing)
    texts = {file.path: folder_texts(file.path) for file in listing.files}
    return replace(listing, values=PathValues(texts=texts, spec_field=FIELD, way_out=_WAY_OUT))


def is_true_on(where: str, partitions: FilePartitions) -> frozenset[str]:
    """The paths of files on whose values ``where`` is true.

    Raises BadSpec for a condition that does not fit, BadData (SOURCE_UNREADABLE) for a value of another type.
    """
    parsed = parse_predicate(where, field=partitions.field)
    shown = {name: str(kind) for name, kind in partitions.types.items()}
    predicate = check_types(parsed, shown, field=partitions.field)
    tested = tuple(sorted(column.name for column in predicate.columns))
    keys = {path: tuple(texts[name] for name in tested) for path, texts in partitions.texts.items()}
    examples = {key: path for path, key in keys.items()}
    distinct = list(examples)
    columns = {
        name: _values(name, partitions, {key[at]: examples[key] for key in distinct}, [key[at] for key in distinct])
        for at, name in enumerate(tested)
    }
    is_true = evaluate_predicate(predicate, columns, len(distinct)).to_pylist()
    taken = {key for key, holds in zip(distinct, is_true, strict=True) if holds}
    return frozenset(path for path, key in keys.items() if key in taken)


def require_folders(listing: SourceListing, source: SourceSpec) -> SourceListing:
    """``listing``. Raises BadData (SOURCE_NOT_FOUND) when the condition left no file in it."""
    if listing.files or source.hive_partitions is None:
        return listing
    message = "it is true on no folder that source.paths name: change the condition or the paths"
    raise BadData(Reason.SOURCE_NOT_FOUND, message, field=_WHERE)


def _require_known(source: SourceSpec, names: Sequence[str]) -> None:
    for name in declared_types(source):
        if name not in names:
            message = f"no folder names the column '{name}': the columns in the names of folders are {', '.join(names)}"
            raise BadSpec(Reason.COLUMN_NOT_FOUND, message, field=f"spec.{FIELD}.columns")


def _types(source: SourceSpec, schema: Schema, names: Sequence[str]) -> Mapping[str, IcebergType]:
    known = {**declared_types(source), **fed_types(source, schema)}
    return {name: known.get(name, StringType()) for name in names}


def _values(
    name: str, partitions: FilePartitions, examples: Mapping[str | None, str], texts: Sequence[str | None]
) -> pa.Array:
    """The values of ``texts``, of which ``examples`` names a file that has it."""
    kind, values = partitions.types[name], list[object]()
    for text in texts:
        try:
            values.append(as_value(text, kind))
        except ValueError as error:
            raise BadData(
                Reason.SOURCE_UNREADABLE,
                f"'{name}={text}', the partition of '{examples[text]}', does not hold a value of type {kind} which the "
                f"condition can compare ({error}): leave '{name}' out of the condition, or fix the partition",
                field=partitions.field,
            ) from error
    arrow = arrow_schema(Schema(NestedField(1, name, kind))).field(0).type
    if isinstance(kind, DateType):
        return pa.array(values, pa.int32()).cast(arrow)
    return pa.array(values, pa.int64()).cast(arrow) if isinstance(kind, TimestampType) else pa.array(values, arrow)
