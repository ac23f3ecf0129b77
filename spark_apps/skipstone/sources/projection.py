"""From raw columns to typed ones, and one sentence for each row that does not fit.

Called by ``reading`` per group of files. Works in stages, each a select of its own, so that Spark computes a value
once however often it is used, and builds a sentence for bad rows only. What grows with the number of columns is SQL
over quoted names: made of Column objects it would be thousands of calls to the JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR

from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from skipstone_core.columntypes import OWN_PREFIX
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from skipstone.sources.columns import SourceColumn
from skipstone.sources.groups import ABSENT, CORRUPT, RawColumn, RawGroup, file_below, quoted, unquoted
from skipstone.sources.text.options import TextForms
from skipstone.sources.text.values import Conversion, from_text
from skipstone.sources.typed.filetypes import FileType, feed, spark_type
from skipstone.sources.typed.nesting import NestedRead, convert_nested, is_nested
from skipstone.sources.unused import UNUSED_COLUMN, counted_text, null_conditions

#: Columns that every frame carries after its data columns. ERROR: string, null for a good row, else one sentence that
#: names the column; messages carry it, so it never holds a value. RECORD and FILE: the row as text and the file's path
#: relative to the root, for bad rows only.
ERROR_COLUMN = "_skipstone_error"
RECORD_COLUMN = "_skipstone_record"
FILE_COLUMN = "_skipstone_file"
#: On demand, behind those: string with a character for each data column: 1 where the row lacks it, else 0.
ABSENT_COLUMN = "_skipstone_lacks"
MAX_RECORD_CHARACTERS = 1 << 20
#: Between texts that become one literal.
_SEPARATOR = "\0"
_CORRUPT_FAULT = -1


@dataclass(frozen=True)
class _Typed:
    """A column on its way: ``ref``, its quoted source column, is None when none of this group feeds it.

    It is ``null`` when that column holds no value.
    """

    column: SourceColumn
    ref: str | None
    value: Column
    what: str = ""

    @property
    def shown(self) -> str:
        """The column as sentences name it."""
        renamed = self.column.name != self.column.source
        return f"column '{self.column.source}'" + (f" (for '{self.column.name}')" if renamed else "")


@dataclass(frozen=True)
class _Made:
    """Names of columns that are made on the way. ``mark``: what no column of the source begins with."""

    mark: str

    @staticmethod
    def beside(group: RawGroup) -> _Made:
        """Of a frame that has the columns of ``group``, used or not."""
        mark, taken = OWN_PREFIX, [unquoted(column.ref) for column in group.columns.values()]
        while any(name.startswith(mark) for name in taken):
            mark += "_"
        return _Made(mark)

    def value(self, position: int) -> str:
        """A column of the frame, by its position."""
        return f"{self.mark}value_{position}"

    @property
    def fault(self) -> str:
        """What is wrong with a row, as a number."""
        return f"{self.mark}fault"

    def carried(self, name: str) -> str:
        """A column that is renamed to ``name``, which is one of ours, once the columns of the source are gone."""
        return f"{self.mark}carried_{name}"


@dataclass(frozen=True)
class ExtraColumns:
    """What a frame tells beside its columns. ``counted``: the columns of which UNUSED_COLUMN says who has a value.

    ``records``: RECORD and FILE of all rows, not of bad ones only.
    """

    absent: bool = False
    counted: tuple[str, ...] = ()
    records: bool = False

    @property
    def names(self) -> list[str]:
        """The columns that it takes."""
        return [*([ABSENT_COLUMN] if self.absent else []), *([UNUSED_COLUMN] if self.counted else [])]


def project(
    group: RawGroup, columns: Sequence[SourceColumn], rules: TextForms, root: str, extras: ExtraColumns
) -> DataFrame:
    """``columns`` typed, then ERROR, RECORD and FILE; ``root`` is the address that paths are relative to.

    Behind them are the ``extras``.

    Raises BadSpec (COLUMN_TYPE_UNSUPPORTED) for a source column that cannot feed its column.
    """
    frame, made = _with_null_text(group, rules), _Made.beside(group)
    typed = [_typed(group, column, rules) for column in columns]
    values = [typed_column.value.alias(made.value(i)) for i, typed_column in enumerate(typed)]
    judged = frame.select("*", *values).select("*", F.expr(f"{_fault(typed, made)} as {made.fault}"))
    record = F.substring(F.coalesce(F.col(CORRUPT), group.record), 1, MAX_RECORD_CHARACTERS)
    held = {
        ERROR_COLUMN: _sentence(group, typed, F.col(made.fault)),
        RECORD_COLUMN: _of_rows(record, made, extras),
        FILE_COLUMN: _of_rows(file_below(root), made, extras),
    }
    named = judged.select("*", *(column.alias(made.carried(name)) for name, column in held.items()))
    data = (f"{made.value(i)} as {quoted(typed_column.column.name)}" for i, typed_column in enumerate(typed))
    ours = (f"{made.carried(name)} as {name}" for name in held)
    extra = {ABSENT_COLUMN: _absent(group, columns) if extras.absent else "",
             UNUSED_COLUMN: counted_text(null_conditions(group, extras.counted))}  # fmt: skip
    rest = (f"{extra[name]} as {name}" for name in extras.names)
    return named.selectExpr(*data, *ours, *rest)


def empty_columns(extras: ExtraColumns) -> list[Column]:
    """ERROR, RECORD and FILE, and the ``extras``, of a frame without rows."""
    names = [ERROR_COLUMN, RECORD_COLUMN, FILE_COLUMN, *extras.names]
    return [F.lit(None).cast("string").alias(name) for name in names]


def _absent(group: RawGroup, columns: Sequence[SourceColumn]) -> str:
    places = {name: at for at, name in enumerate(group.columns, start=1)}
    bits = [
        "'1'" if column.source not in places
        else f"substring({ABSENT}, {places[column.source]}, 1)" if group.tells_absent
        else "'0'"
        for column in columns
    ]  # fmt: skip
    return f"concat({', '.join(bits)})"


def _with_null_text(group: RawGroup, rules: TextForms) -> DataFrame:
    """The group's frame with the text that stands for null made null."""
    text = rules.options.null_value
    if text is None:
        return group.frame
    texts = [column for column in group.columns.values() if column.is_text and not column.is_nested_text]
    raw = [F.col(column.ref) for column in texts]
    names = [unquoted(column.ref) for column in texts]
    return group.frame.withColumns(
        {name: F.when(raw_column != text, raw_column) for name, raw_column in zip(names, raw, strict=True)}
    )


def _typed(group: RawGroup, column: SourceColumn, rules: TextForms) -> _Typed:
    raw_column = group.columns.get(column.source)
    if raw_column is None:
        return _Typed(column, None, _null(column))
    conversion = None if raw_column.is_escaped else _conversion(raw_column, column, rules)
    if conversion is not None:
        return _Typed(column, raw_column.ref, conversion.value, conversion.what)
    if not (raw_column.is_empty and column.type.is_primitive):
        raise _unsupported(group, column, raw_column)
    return _Typed(column, "null", _null(column))


def _null(column: SourceColumn) -> Column:
    return F.lit(None).cast(spark_type(column.type))


def _conversion(column: RawColumn, target: SourceColumn, rules: TextForms) -> Conversion | None:
    def leaf(raw: Column, kind: FileType | None, wanted: IcebergType) -> Conversion | None:
        return _plain_conversion(raw, kind, wanted, rules)

    raw, kind = F.col(column.ref), target.type
    if column.is_text and not column.is_nested_text:
        return leaf(raw, None, kind)
    if column.file_type is None and not column.is_nested_text:
        return None
    if column.is_nested_text or (is_nested(kind) and column.file_type is not None and column.file_type.inside):
        return convert_nested(raw, NestedRead(target.source, column.file_type, rules.options.null_value), kind, leaf)
    return leaf(raw, column.file_type, kind)


def _plain_conversion(raw: Column, kind: FileType | None, wanted: IcebergType, rules: TextForms) -> Conversion | None:
    """``kind``: None for text."""
    if kind is not None:
        return feed(kind, raw, wanted, rules.time_zone)
    conversion = from_text(raw, wanted, rules)
    if conversion is None or not isinstance(wanted, DateType | TimestampType | TimestamptzType):
        return conversion
    # in UTC, as the session is; what formats of Spark's make of other years is not what the text says
    return replace(conversion, value=F.when(F.year(conversion.value).between(MINYEAR, MAXYEAR), conversion.value))


def _fault(typed: Sequence[_Typed], made: _Made) -> str:
    """The row's first fault as a number: a column's position for a misfit, that plus their count for a null."""
    faults = [f"when {CORRUPT} is not null then {_CORRUPT_FAULT}"]
    for position, typed_column in enumerate(typed):
        if typed_column.ref is not None:
            faults.append(f"when {typed_column.ref} is not null and {made.value(position)} is null then {position}")
            if typed_column.column.required:
                faults.append(f"when {typed_column.ref} is null then {len(typed) + position}")
    return f"case {' '.join(faults)} end"


def _sentence(group: RawGroup, typed: Sequence[_Typed], fault: Column) -> Column:
    corrupt = F.when(fault == _CORRUPT_FAULT, F.lit(group.corrupt))
    if not typed:
        return corrupt
    misfits = [f"{typed_column.shown}: the value is not {typed_column.what}" for typed_column in typed]
    nulls = [f"{typed_column.shown} is required and holds null" for typed_column in typed]
    return corrupt.when(fault < len(typed), _chosen(misfits, fault)).when(
        fault.isNotNull(), _chosen(nulls, fault - len(typed))
    )


def _chosen(texts: Sequence[str], position: Column) -> Column:
    joined = _SEPARATOR.join(text.replace(_SEPARATOR, "\ufffd") for text in texts)
    return F.element_at(F.split(F.lit(joined), _SEPARATOR), position + 1)


def _of_rows(column: Column, made: _Made, extras: ExtraColumns) -> Column:
    return column if extras.records else F.when(F.col(made.fault).isNotNull(), column)


def _unsupported(group: RawGroup, column: SourceColumn, raw: RawColumn) -> BadSpec:
    if raw.is_escaped:
        message = (
            f"column '{column.source}' of the Delta table is binary, and the log has values of partitions as text with "
            "escapes, which are not read: write the rows into a Delta table that is not partitioned by it"
        )
    elif raw.is_text:
        message = f"column '{column.name}' is {column.type}, which text cannot carry: load it from Parquet, Orc or Avro"
    else:
        shown = f"the type {raw.shown}, which" if raw.shown else "a type that"
        described = raw.file_type.natural if raw.file_type else f"of {shown} is not loaded,"
        message = (
            f"column '{column.source}' of '{group.example}' is {described} and cannot feed '{column.name}' "
            f"({column.type}) without loss: change the file's type or the table's"
        )
    return BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field="source")
