"""Files of AWS DMS as changes: Csv with a header, and Parquet.

Source: the documentation of AWS DMS, "Using Amazon S3 as a target". A later file and a later row
win; files of the full load, which are called LOAD… or have no column Op, come before those with changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import TimestampType, TimestamptzType
from skipstone_core.contract.formats import ChangeFormat, SourceFormat
from skipstone_core.merging.feeds import DELETE, UPSERT
from skipstone_core.merging.unused import SourceNames, plain_name, require_delimiter

from skipstone.sources.feeds.batches import BATCH_ROWS, BatchMaker, Notes
from skipstone.sources.feeds.csvrows import CsvRow, csv_rows
from skipstone.sources.feeds.positions import CHANGE, SNAPSHOT
from skipstone.sources.feeds.registry import FileOrder, Tool
from skipstone.sources.feeds.rejecting.salvaging import salvaged
from skipstone.sources.feeds.shapes import Change, FeedColumn, FeedTarget, Mark, UnfitRecord, ValueStyle, refused
from skipstone.sources.feeds.unknown import noted_columns
from skipstone.sources.feeds.values.generated import Lacks
from skipstone.sources.feeds.values.texts import instant
from skipstone.sources.feeds.values.times import require_years
from skipstone.sources.text.headers import unreadable
from skipstone.storage.port import StoredFile
from skipstone.tables.parquetfiles import WholeFile

_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
OP = "Op"
_INSERT, _UPDATE = "I", "U"
_OPS = {_INSERT: UPSERT, _UPDATE: UPSERT, "D": DELETE}
_FULL_LOAD = "LOAD"
#: The name of a file of changes: when it was begun.
_STAMPED = re.compile(r"\d{8}-\d{6,}", re.ASCII)


def _csv_batches(stored: StoredFile, maker: BatchMaker) -> Iterator[pa.RecordBatch]:
    """The rows of a Csv file. Raises BadData naming file and line."""
    with csv_rows(stored, maker.target) as (header, rows):
        if header is not None:
            _require_header(stored.name, header, maker.target)
            yield from _csv_rows(stored.name, header, rows, maker)


def _require_header(name: str, header: Sequence[str], target: FeedTarget) -> None:
    known = [column.name for column in target.columns]
    require_delimiter([SourceNames(name, tuple(header))], target.delimiter, {OP, *known})
    lacking = [key for key in target.keys if key not in header]
    if lacking:
        raise refused(
            name,
            f"its first line does not name the key column '{lacking[0]}': files without a header lose deletes, let AWS "
            "DMS write one (AddColumnName=true)",
            1,
        )
    twice = next((column for column in header if header.count(column) > 1), None)
    if twice is not None:
        raise refused(name, f"the column '{twice}' stands twice in the header: give each column its own name", 1)
    _require_op(name, header, target)


def _require_op(name: str, columns: Sequence[str], target: FeedTarget) -> None:
    """Refuse a file whose Op is written in other letters, as tools that convert files do: deletes would become rows."""
    known = {column.name for column in target.columns}
    twin = next(
        (candidate for candidate in columns if candidate not in known and plain_name(candidate) == plain_name(OP)), None
    )
    if twin is not None and OP not in columns:
        message = f"it has a column '{twin}' and no column '{OP}', and names are exact: let the files name it '{OP}'"
        raise refused(name, message, 1)


def _csv_rows(name: str, header: Sequence[str], rows: Iterator[CsvRow], maker: BatchMaker) -> Iterator[pa.RecordBatch]:
    empties = {column.name for column in maker.target.columns if _is_text(column)}
    is_load = _is_load(name, header)
    mark = _mark(is_full_load=is_load)
    changes: list[Change] = []
    for line, row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise refused(name, f"the row does not have the {len(header)} fields of the header", line)
        cells = dict(zip(header, row, strict=True))
        op = cells.pop(OP, _INSERT)
        values = {key: _value(text, maker.target, keeps_empty=key in empties) for key, text in cells.items()}
        changes.append(_change(name, maker.target, Change(op, values, mark, line, op == _UPDATE, is_load)))
        if len(changes) == BATCH_ROWS:
            yield from maker.batches(changes)
            changes = []
    if changes:
        yield from maker.batches(changes)


def _is_text(column: FeedColumn) -> bool:
    return bool(pa.types.is_string(column.arrow))


def _value(text: str, target: FeedTarget, *, keeps_empty: bool) -> str | None:
    return None if text == target.null_text or not (text or keeps_empty) else text


def _change(name: str, target: FeedTarget, row: Change) -> Change:
    """The change of a row whose ``op`` is as DMS writes it."""
    if row.op not in _OPS:
        raise refused(name, f"its {OP} is none of I, U and D", row.line)
    if lacking := [key for key in target.keys if row.values.get(key) is None]:
        raise refused(name, f"it has no value for the key column '{lacking[0]}'", row.line)
    op = _OPS[row.op]
    values = row.values if op == UPSERT else {key: row.values[key] for key in target.keys}
    return row._replace(op=op, values=values)


def _is_load(name: str, columns: Sequence[str]) -> bool:
    """Return whether a file is of the full load. Files of changes lack Op when the task writes inserts only."""
    return _is_full_load(name) or (OP not in columns and not _STAMPED.match(PurePosixPath(name).name))


def _is_full_load(path: str) -> bool:
    """Return whether the name of a file is that of a full load."""
    return PurePosixPath(path).name.startswith(_FULL_LOAD)


def _place(path: str) -> tuple[bool, str, str]:
    """What files are ordered by: the time in their names, because folders of dates need not be in their order."""
    return not _is_full_load(path), PurePosixPath(path).name, path


def _parquet_batches(stored: StoredFile, maker: BatchMaker) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file, from Arrow to Arrow. Raises BadData naming file and column."""
    line, known = 1, {column.name for column in maker.target.columns}
    try:
        with stored.open(buffering=0) as opened:
            file = WholeFile(opened, coerce_int96_timestamp_unit="us")
            names = file.schema_arrow.names
            _require_keys(stored.name, names, maker.target)
            _require_op(stored.name, names, maker.target)
            maker.require_case(names, line)
            is_load = _is_load(stored.name, names)
            _require_once(stored.name, [name for name in names if name == OP or name in known])
            for batch in _exact_batches(stored, file, list(dict.fromkeys(names))):
                yield from _Rows(_without_views(batch), line, is_load, maker).batches()
                line += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        raise unreadable(stored.name, f"this is not a readable Parquet file: {error}") from error


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Text and bytes that a file's Arrow schema calls views, as Parquet has them: few functions of Arrow take views."""
    for at, field in enumerate(batch.schema):
        if (plain := _VIEWS.get(field.type)) is not None:
            batch = batch.set_column(at, field.name, batch.column(at).cast(plain))
    return batch


def _exact_batches(stored: StoredFile, file: WholeFile, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of ``file``; timestamps of 96 bits that have nanoseconds come with them, and are refused later.

    Arrow cuts such timestamps to the unit that it is told, or turns them around at the bounds of 64 bits. Turned
    around, they still tell by how much they were cut.
    """
    leaves = [file.schema.column(at) for at in range(len(file.schema))]
    wide = [leaf.path for leaf in leaves if leaf.physical_type == "INT96" and leaf.path in wanted]
    batches = file.batches(wanted, rows=BATCH_ROWS)
    if not wide:
        yield from batches
        return
    with stored.open(buffering=0) as opened:
        other = WholeFile(opened, file.metadata, coerce_int96_timestamp_unit="ns")
        rows = _Regrouped(other.batches(wide, rows=BATCH_ROWS))
        for batch in batches:
            nanos = rows.take(batch.num_rows)
            for name in wide:
                if _is_cut(batch.column(name), nanos.column(name)):
                    batch = batch.set_column(batch.schema.get_field_index(name), name, nanos.column(name))
            yield batch


class _Regrouped:
    """Rows that are read in other batches than they are taken in."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Read nothing yet."""
        self._batches = batches
        self._left: pa.RecordBatch | None = None

    def take(self, count: int) -> pa.RecordBatch:
        """The next ``count`` rows."""
        parts: list[pa.RecordBatch] = []
        while count:
            left = self._left if self._left is not None and self._left.num_rows else next(self._batches)
            parts.append(left.slice(0, count))
            self._left, count = left.slice(count), count - parts[-1].num_rows
        return pa.concat_batches(parts)


def _is_cut(micros: pa.Array, nanos: pa.Array) -> bool:
    kept, whole = (np.asarray(array.cast(pa.int64()).fill_null(0)).astype(np.uint64) for array in (micros, nanos))
    return bool((kept * np.uint64(1000) != whole).any())


def _require_keys(name: str, columns: Sequence[str], target: FeedTarget) -> None:
    lacking = [key for key in target.keys if key not in columns]
    if lacking:
        raise refused(name, f"it has no key column '{lacking[0]}': names are exact, fix keys or the task of AWS DMS")


def _require_once(name: str, columns: Sequence[str]) -> None:
    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise refused(name, f"the column '{twice}' stands twice in the file: give each column its own name")


@dataclass(frozen=True)
class _Rows:
    """Rows of a file that begin with the row ``line``. ``is_load``: the file is of the full load."""

    batch: pa.RecordBatch
    line: int
    is_load: bool
    maker: BatchMaker

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return their changes; those that cannot be applied have a fault if the target says so."""
        if not self.maker.target.rejects:
            yield self._good(0, self.batch.num_rows)
            return
        yield from salvaged(range(self.batch.num_rows), self._good, self._faulty)

    def changes(self, start: int, stop: int) -> list[Change]:
        """Return some of them without their values."""
        mark, line = _mark(is_full_load=self.is_load), self.line + start
        ops = _ops(self.batch.slice(start, stop - start), line, self.maker)
        return [Change(_OPS[op], {}, mark, line + at, op == _UPDATE, self.is_load) for at, op in enumerate(ops)]

    def _good(self, start: int, stop: int) -> pa.RecordBatch:
        changes = self.changes(start, stop)
        return _parquet_batch(self.batch.slice(start, stop - start), self.line + start, changes, self.maker)

    def _faulty(self, start: int, stop: int, fault: str) -> pa.RecordBatch:
        """The keys of rows that cannot be applied, and which columns they would have set."""
        rows, line = self.batch.slice(start, stop - start), self.line + start
        maker, names, carried = self.maker, self.batch.schema.names, self.maker.target.carried
        empty = {column.name: pa.nulls(rows.num_rows, column.arrow) for column in carried}
        keys = {key.name: _fitted(_values(rows, key.name), key, line, maker) for key in carried if key.is_key}
        arrays = list({**empty, **keys}.values())
        absent = np.tile([column.name not in names for column in carried], (rows.num_rows, 1))
        notes = Notes([None] * rows.num_rows, fault=fault)
        return maker.assembled(arrays, self.changes(start, stop), Lacks(absent, np.zeros_like(absent)), notes)


def _values(batch: pa.RecordBatch, name: str) -> pa.Array:
    values = batch.column(name)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _parquet_batch(batch: pa.RecordBatch, line: int, changes: Sequence[Change], maker: BatchMaker) -> pa.RecordBatch:
    target, names = maker.target, batch.schema.names
    deletes = pa.array([change.op == DELETE for change in changes], pa.bool_())
    absent = np.zeros((batch.num_rows, len(target.carried)), dtype=bool)
    arrays = []
    _refuse_unread(batch, deletes, line, maker)
    for at, column in enumerate(target.carried):
        if column.name not in names:
            absent[:, at] = True
            arrays.append(pa.nulls(batch.num_rows, column.arrow))
            continue
        values = _values(batch, column.name)
        if column.is_key and values.null_count:
            raise refused(maker.name, f"the key column '{column.name}' holds null")
        if not column.is_key:  # what a delete says of them does not count
            _require_values(values, column, changes, maker)
            values = pc.if_else(deletes, pa.scalar(None, values.type), values)
        arrays.append(_fitted(values, column, line, maker))
    known = {OP, *(column.name for column in target.columns)}
    others = {name: batch.column(name) for name in names if name not in known and names.count(name) == 1}
    unknown = noted_columns(others, [change.op != DELETE for change in changes])
    return maker.assembled(arrays, changes, Lacks(absent, np.zeros_like(absent)), Notes(unknown))


def _require_values(values: pa.Array, column: FeedColumn, changes: Sequence[Change], maker: BatchMaker) -> None:
    """Raise UnfitRecord for a null that the table does not take, if faults are told one by one."""
    if not (maker.target.rejects and column.required and values.null_count):
        return
    nulls = pc.indices_nonzero(values.is_null()).to_pylist()
    if (unfit := next((changes[at] for at in nulls if changes[at].op == UPSERT), None)) is not None:
        raise maker.required_null(column, unfit.line)


def _refuse_unread(batch: pa.RecordBatch, deletes: pa.Array, line: int, maker: BatchMaker) -> None:
    for column in maker.target.columns:
        if column.read or column.name not in batch.schema.names:
            continue
        is_unread = pc.and_not(pc.is_valid(batch.column(column.name)), deletes)
        if (at := pc.index(is_unread, value=True).as_py()) >= 0:
            raise maker.unread(column, line + at)


def _ops(batch: pa.RecordBatch, line: int, maker: BatchMaker) -> list[str]:
    if OP not in batch.schema.names:
        return [_INSERT] * batch.num_rows
    ops = _texts(batch.column(OP), OP, maker)
    wrong = next((at for at, op in enumerate(ops) if op not in _OPS), None)
    if wrong is not None:
        raise refused(maker.name, f"its {OP} is none of I, U and D", line + wrong)
    return [str(op) for op in ops]


def _texts(values: pa.Array, column: str, maker: BatchMaker) -> list[str | None]:
    try:
        texts: list[str | None] = values.to_pylist()
    except UnicodeDecodeError as error:
        raise refused(maker.name, f"column '{column}': a text is not UTF-8: write the file again") from error
    return texts


def _fitted(values: pa.Array, column: FeedColumn, line: int, maker: BatchMaker) -> pa.Array:
    """``values`` in the type of ``column``; whatever a cast would change is refused."""
    if values.null_count == len(values):  # of any type, that of columns without values among them
        return pa.nulls(len(values), column.arrow)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        lines = range(line, line + len(values))
        return maker.decoded(_texts(values, column.name, maker), column, lines)
    try:
        converted = _cast(values, column, maker.target)
        if converted is not None:
            converted.validate(full=True)
            return _of_known_years(converted, column, line, maker)
    except (pa.ArrowException, ValueError, OverflowError):
        pass
    what = (
        f"column '{column.name}': a value of type {values.type} near row {line} is not of type {column.type} without "
    )
    remedy = "loss: change the table's type, or that of the task of AWS DMS"
    if column.is_key or not maker.target.rejects:
        raise refused(maker.name, what + remedy)
    raise UnfitRecord(maker.name, line, what + remedy)


def _of_known_years(values: pa.Array, column: FeedColumn, line: int, maker: BatchMaker) -> pa.Array:
    try:
        return require_years(values)
    except ValueError as error:
        raise refused(
            maker.name,
            f"column '{column.name}': a {column.type} near row {line} is in a year before 1 or after 9999, which "
            "change feeds do not take: change it in the source database, and load the table again",
        ) from error


def _cast(values: pa.Array, column: FeedColumn, target: FeedTarget) -> pa.Array | None:
    """None for types that do not stand for each other."""
    kind, into = values.type, column.arrow
    if pa.types.is_time(kind) and pa.types.is_string(into):
        return values.cast(pa.time64("us")).cast(into)
    for family in _FAMILIES:
        if family(kind) and family(into):
            break
    else:
        return None
    if pa.types.is_timestamp(kind):
        return _moments(values, column, target)
    if kind == into:
        return values
    converted = _numbers(values, into) if _is_number(kind) else values.cast(into)
    back = _numbers(converted, kind) if _is_number(kind) else converted.cast(kind)
    return converted if _same(values, back) else None


def _same(values: pa.Array, back: pa.Array) -> bool:
    """Return whether all values came back; NaN does."""
    equal = pc.or_(pc.equal(values, back), pc.not_equal(values, values)) if _is_number(values.type) else None
    equal = pc.equal(values, back) if equal is None else equal
    return bool(pc.all(pc.fill_null(equal, fill_value=True)).as_py() in (True, None))


def _numbers(values: pa.Array, into: pa.DataType) -> pa.Array:
    """Integers on their way to decimals: Arrow judges that cast by types, not by values."""
    if pa.types.is_integer(values.type) and pa.types.is_decimal(into):
        return values.cast(pa.decimal128(38, min(into.scale, 18))).cast(into)
    return values.cast(into, safe=not (pa.types.is_floating(values.type) and pa.types.is_floating(into)))


def _moments(values: pa.Array, column: FeedColumn, target: FeedTarget) -> pa.Array | None:
    """Timestamps of any unit; those without zone are times in the job's zone where instants are wanted."""
    zone = values.type.tz
    if isinstance(column.type, TimestampType):
        return None if zone is not None else values.cast(column.arrow)
    if not isinstance(column.type, TimestamptzType):
        return None
    if zone is not None:
        return values.cast(column.arrow)
    micros = values.cast(pa.timestamp("us")).cast(pa.int64())
    if target.zone is None:
        return micros.cast(column.arrow)
    return pa.array([None if v is None else instant(v, target.zone) for v in micros.to_pylist()], column.arrow)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


_FAMILIES: Sequence[Callable[[pa.DataType], bool]] = (
    _is_number,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind),
)


def _mark(*, is_full_load: bool) -> Mark:
    """That of a row: files tell the rest."""
    return Mark("", "dms", None, SNAPSHOT if is_full_load else CHANGE)


def _is_exact(_origin: str, _log: str | None, _order: bytes) -> bool:
    return False


def _batches(stored: StoredFile, maker: BatchMaker) -> Iterator[pa.RecordBatch]:
    is_csv = maker.target.format is SourceFormat.CSV
    return _csv_batches(stored, maker) if is_csv else _parquet_batches(stored, maker)


TOOLS = (
    Tool(
        format=ChangeFormat.DMS,
        batches=_batches,
        values=ValueStyle(
            is_text=True,
            null_text="NULL",
            bytes_remedy="let AWS DMS write Parquet, or leave the column out",
        ),
        order=FileOrder(place=_place, is_full_load=_is_full_load),
        is_exact=_is_exact,
    ),
)
