"""Reads Csv and Json files as raw text columns, cut by Spark's own parsers.

Called by ``reading``. Csv columns go by the names in each file's header, never by position alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType
from pyiceberg.types import StructType as IcebergStruct
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType as SparkArray
from pyspark.sql.types import DataType, StringType, StructField, StructType
from skipstone_core.contract.requests import SourceSpec
from skipstone_core.errors import BadSpec
from skipstone_core.language.paths import split_path
from skipstone_core.reasons import Reason

from skipstone.sources.groups import ABSENT, CORRUPT, NO_GLOB, URL, RawColumn, RawGroup, quoted, with_url
from skipstone.sources.listing import SourceListing
from skipstone.sources.nested import Named, struct_types, with_fields
from skipstone.sources.presence import complete, has_vanished
from skipstone.sources.text.csvlines import SPARE, require_plain_document, require_plain_lines
from skipstone.sources.text.csvrecords import CsvShape, csv_batches, is_parsed_by_arrow
from skipstone.sources.text.documents import DEPTH, DEPTH_OPTION, require_one_document, require_readable_text
from skipstone.sources.text.headers import read_header, require_not_packed, require_unpackable, unreadable
from skipstone.sources.text.lines import require_one_document_per_line
from skipstone.sources.text.options import TextOptions
from skipstone.sources.text.recordnames import (
    alike,
    find_instead,
    may_be_unnamed,
    named_twice,
    require_named,
    require_named_within,
)
from skipstone.sources.text.wholefiles import whole_files
from skipstone.sources.typed.nesting import text_type, unknown_field
from skipstone.storage.port import StoredFile

#: Spark's null for empty fields without quotes; anything that could stand in a file would be lost as null.
_NEVER_WRITTEN = "\ue000\uf8ff\ue000"
#: Read where no record has a name: Spark refuses to read nothing but the text of broken records.
_NO_NAME = "_skipstone_no_name"
#: What Spark says of an object with two values of one name.
_IS_TWICE = "[COLUMN_ALREADY_EXISTS]"
#: An object without names, or with an empty one, also within lists. In a string it costs time only.
_EMPTY_OBJECT = r'\{\s*(?:\}|"")'
#: What Spark puts where a record does not have a name: a byte that no text in UTF-8 has.
_NO_TEXT = "cast(X'FF' as string)"
_MARKED = {"EXISTS_DEFAULT": _NO_TEXT, "CURRENT_DEFAULT": _NO_TEXT}


def spark_paths(listing: SourceListing, names: Sequence[str]) -> list[str]:
    """The files ``names`` of ``listing`` as Spark takes them. Raises BadSpec (INVALID_SPEC) for a name with a colon."""
    for name in names:
        if ":" in name.rpartition("/")[2]:
            raise BadSpec(
                Reason.INVALID_SPEC,
                f"'{name}' has a colon in its name, which Spark cannot read: rename the file",
                field="source.paths",
            )
    return [listing.storage.address(name) for name in names]


def spark_reader(spark: SparkSession, listing: SourceListing) -> DataFrameReader:
    """What reads ``spark_paths`` of ``listing``."""
    return spark.read.options(**NO_GLOB, **listing.storage.hadoop_settings())


def csv_groups(
    spark: SparkSession, listing: SourceListing, names: Sequence[str], options: TextOptions
) -> list[RawGroup]:
    """One group per header; ``names`` are the columns of files without header.

    Raises BadData (SOURCE_UNREADABLE) for a header that cannot be used.
    """
    headers: dict[tuple[str, ...], list[StoredFile]] = {}
    for file in listing.stored:
        require_unpackable(file.name)
        header = read_header(file, options)
        if header is not None:
            headers.setdefault(header if options.header else tuple(names), []).append(file)
    for_spark = [] if is_parsed_by_arrow(options) else [file for files in headers.values() for file in files]
    if options.multi_line:
        for file in for_spark:
            require_plain_document(file, options)
    elif for_spark:
        lines = spark_reader(spark, listing).text(spark_paths(listing, [file.name for file in for_spark]))
        require_plain_lines(complete(lines, listing, len(for_spark)), options, listing.storage.address())
    return [_csv_group(spark, listing, header, files, options) for header, files in headers.items()]


def _csv_group(
    spark: SparkSession,
    listing: SourceListing,
    header: Sequence[str],
    files: Sequence[StoredFile],
    options: TextOptions,
) -> RawGroup:
    references = [f"c{position}" for position in range(len(header))]
    if is_parsed_by_arrow(options):
        shape = CsvShape(options, references, header if options.header else None)
        ddl = [f"{name} string" for name in (*references, CORRUPT)]
        frame = whole_files(spark, listing, files, partial(csv_batches, shape=shape), ddl)
    else:
        reader = spark_reader(spark, listing).schema(_strings(references))
        paths = spark_paths(listing, [file.name for file in files])
        frame = reader.options(**_csv_options(options), **_common(options)).csv(paths)
        frame = with_url(complete(frame, listing, len(files)))
    return RawGroup(
        frame=frame,
        columns=csv_columns(header, references),
        record=_csv_record(references, options),
        corrupt=f"the row does not have the {len(header)} fields of the header",
        example=files[0].name,
    )


def csv_columns(header: Sequence[str], references: Sequence[str]) -> Mapping[str, RawColumn]:
    """The columns by name; one without a name goes by its position, as Spark calls it."""
    columns = {name: RawColumn(ref, is_text=True) for name, ref in zip(header, references, strict=True) if name}
    unnamed = {_free_name(f"_c{at}", columns): RawColumn(ref, is_text=True, is_unnamed=True)
               for at, (name, ref) in enumerate(zip(header, references, strict=True)) if not name}  # fmt: skip
    return {**unnamed, **columns}


def _free_name(name: str, taken: Collection[str]) -> str:
    return _free_name(f"_{name}", taken) if name in taken else name


def _csv_options(options: TextOptions) -> Mapping[str, str]:
    return {
        "header": str(options.header).lower(),
        "sep": options.delimiter.replace("\\", r"\\"),  # Spark takes one for the beginning of \t and the like
        "quote": options.quote or SPARE,
        "escape": options.escape or "\\",
        "charToEscapeQuoteEscaping": SPARE if options.escape == options.quote else options.escape,
        "encoding": options.encoding,
        "columnPruning": "false",
        "nullValue": _NEVER_WRITTEN,
    }


def _csv_record(references: Sequence[str], options: TextOptions) -> Column:
    delimiter = options.delimiter.replace("\\", r"\\")
    dialect = {"sep": delimiter, "quote": options.quote or '"', "escape": options.escape or "\\"}
    return F.to_csv(F.expr(f"struct({', '.join(references)})"), {**dialect, "nullValue": options.null_value or ""})


def json_groups(
    spark: SparkSession, listing: SourceListing, options: TextOptions, named: Named, wanted: Collection[str]
) -> list[RawGroup]:
    """One group with every name that stands in a record; reads the files once to learn the names.

    ``wanted``: names that are looked for again if they are not found: Spark finds none of which all values are objects
    without names.

    ``named`` fields within objects become columns in place of these objects; where files may lack columns, the group
    tells which a record lacks. Raises BadData (SOURCE_UNREADABLE), and as ``find_field`` does.
    """
    for file in listing.stored:
        require_unpackable(file.name)
        if options.multi_line:
            require_readable_text(file)
            require_one_document(file)
            require_not_packed(file.name)
    paths = spark_paths(listing, [file.path for file in listing.files])
    text = _text(spark, listing, options)
    require = require_named if options.multi_line else require_one_document_per_line
    require(complete(text, listing, len(paths)), listing.storage.address())
    all_names = _json_names(spark, paths, options, listing)
    all_names += _empty_names(spark, paths, options, listing, sorted({*wanted} - {name.name for name in all_names}))
    fields = [name for name, _ in named.found(all_names)]
    nested = {} if named.needed is not None else _nested_types(all_names, named)
    if nested and may_be_unnamed(text):
        texts = spark_reader(spark, listing).schema(_strings([*nested])).options(**_json_options(options)).json(paths)
        require_named_within(with_url(texts), {name: named.nested[name] for name in nested}, listing.storage.address())
    types = {split_path(name): "string" for name in fields} | {(name,): kind for name, kind in nested.items()}
    types |= {(name.name,): "string" for name in all_names if name.name not in {path[0] for path in types}}
    read = struct_types(types) or {_NO_NAME: "string"}
    columns = {
        name: RawColumn(quoted(name), is_text=True, is_nested_text=name in nested) for name in read if (name,) in types
    }
    columns |= {name: RawColumn(quoted(name), is_text=True, is_field=True) for name in fields}
    tell_absent = named.needed is not None
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in read.items())
    schema = cast("StructType", StructType.fromDDL(ddl))
    schema = (_marked(schema) if tell_absent else schema).add(CORRUPT, StringType())
    frame: DataFrame = spark_reader(spark, listing).schema(schema).options(**_json_options(options)).json(paths)
    frame = with_url(complete(frame, listing, len(paths)))
    return [
        RawGroup(
            frame=_with_absent(frame, columns) if tell_absent else with_fields(frame, fields),
            tells_absent=tell_absent,
            columns=columns,
            record=F.to_json(F.expr(f"struct({', '.join(map(quoted, columns or read))})")),
            corrupt=f"the record is not a JSON object, or nests more than {DEPTH} deep",
            example=next((file.path for file in listing.files if file.size), listing.files[0].path),
            instead=_instead(spark, paths, options, listing, [name.name for name in all_names]),
        )
    ]


def _instead(
    spark: SparkSession, paths: Sequence[str], options: TextOptions, listing: SourceListing, names: Sequence[str]
) -> frozenset[tuple[str, str]]:
    groups = alike(names)
    if not groups:
        return frozenset()
    schema = _marked(StructType([StructField(name, StringType()) for group in groups for name in group]))
    reader = spark_reader(spark, listing).schema(schema).options(**_json_options(options))
    return find_instead(groups, reader.json(list(paths)), _NO_TEXT)


def _marked(struct: StructType) -> StructType:
    """``struct`` with the text that stands for absence as the default of all texts in it."""
    return StructType(
        [
            StructField(field.name, _marked(field.dataType))
            if isinstance(field.dataType, StructType)
            else StructField(field.name, field.dataType, metadata=_MARKED)
            for field in struct
        ]
    )


def _with_absent(frame: DataFrame, columns: Mapping[str, RawColumn]) -> DataFrame:
    """The columns with ABSENT, and null in place of the text that stands for a name which a record does not have.

    An object that is null or absent has no fields.
    """
    bits, values = ["''"], []
    for name, column in columns.items():
        path = list(map(quoted, split_path(name))) if column.is_field else [quoted(name)]
        value, above = ".".join(path), ".".join(path[:-1])
        is_absent = f"{value} <=> {_NO_TEXT}" + (f" or {above} is null" if above else "")
        bits.append(f"if({is_absent}, '1', '0')")
        values.append(f"nullif({value}, {_NO_TEXT}) as {quoted(name)}")
    return frame.selectExpr(*values, CORRUPT, URL, f"concat({', '.join(bits)}) as {ABSENT}")


def _text(spark: SparkSession, listing: SourceListing, options: TextOptions) -> DataFrame:
    """The lines of all files, or each as a whole."""
    reader = spark_reader(spark, listing).options(wholetext=str(options.multi_line).lower())
    return reader.text(spark_paths(listing, [file.path for file in listing.files]))


def _json_names(spark: SparkSession, paths: Sequence[str], options: TextOptions, listing: SourceListing) -> list[_Name]:
    try:
        reader = spark_reader(spark, listing).options(primitivesAsString="true", **_json_options(options))
        schema = complete(reader.json(list(paths)), listing, len(paths)).schema
    except AnalysisException as error:
        if has_vanished(str(error)):
            raise
        if _IS_TWICE in str(error):
            raise named_twice(
                _text(spark, listing, options), listing.storage.address(), listing.files[0].path
            ) from error
        raise unreadable(listing.files[0].path, f"the names of the records cannot be used: {error}") from error
    return [name for name in _names(schema) if name.name != CORRUPT]


def _empty_names(
    spark: SparkSession, paths: Sequence[str], options: TextOptions, listing: SourceListing, names: Sequence[str]
) -> list[_Name]:
    """Those of ``names`` that have a value after all."""
    if not names:
        return []
    if _text(spark, listing, options).where(F.col("value").rlike(_EMPTY_OBJECT)).isEmpty():
        return []
    reader = spark_reader(spark, listing).schema(_strings(names)).options(**_json_options(options))
    values = (F.max(F.col(quoted(name)).isNotNull()).alias(quoted(name)) for name in names)
    (row,) = reader.json(list(paths)).agg(*values).collect()
    return [_Name(name, ()) for name, is_there in zip(names, row, strict=True) if is_there]


class _Name(NamedTuple):
    """A name that stands in records, or in objects within them; ``fields`` is None for what may be null throughout."""

    name: str
    fields: Sequence[_Name] | None
    type: DataType | None = None


def _names(struct: StructType) -> list[_Name]:
    return [_Name(field.name, _fields(field.dataType), field.dataType) for field in struct.fields]


def _nested_types(names: Sequence[_Name], named: Named) -> dict[str, str]:
    """The Spark types of columns that feed lists, maps and structs: text within. Raises BadSpec for unknown fields."""
    types = {}
    roots = {split_path(name)[0] for name in named.fields}
    for name in names:
        if (target := named.nested.get(name.name)) is not None and name.name not in roots:
            _require_known(name.type, target, (name.name,))
            types[name.name] = text_type(target)
    return types


def _require_known(kind: DataType | None, target: IcebergType, path: tuple[str, ...]) -> None:
    """Raise BadSpec for a field of an object that the table's struct does not have, at any depth."""
    match kind, target:
        case SparkArray(), ListType():
            _require_known(kind.elementType, target.element_type, (*path, "element"))
        case StructType(), MapType():
            for field in kind.fields:
                _require_known(field.dataType, target.value_type, (*path, "value"))
        case StructType(), IcebergStruct():
            known = {field.name: field.field_type for field in target.fields}
            for field in kind.fields:
                if field.name not in known:
                    raise unknown_field((*path, field.name))
                _require_known(field.dataType, known[field.name], (*path, field.name))


def _fields(kind: DataType) -> Sequence[_Name] | None:
    if isinstance(kind, StructType):
        return _names(kind)
    return None if isinstance(kind, StringType) else ()


def _common(options: TextOptions) -> dict[str, str]:
    """For both formats. Json is UTF-8 always: told an encoding, Spark would no longer keep numbers as written."""
    return {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "multiLine": str(options.multi_line).lower(),
    }


def _json_options(options: TextOptions) -> dict[str, str]:
    return {**_common(options), **dict([DEPTH_OPTION])}


def _strings(names: Sequence[str]) -> StructType:
    return StructType([StructField(name, StringType()) for name in (*names, CORRUPT)])


def declared_names(source: SourceSpec, schema: Schema) -> tuple[str, ...]:
    """The columns of Csv files without header: ``source.columns`` in order, else the table's."""
    return tuple(column.name for column in source.columns) or tuple(field.name for field in schema.fields)
