"""What the properties of a table say of how its files are written, whoever set them.

Used by the writers and by runs before they read a source. A value that no engine could use is refused with a sentence.
Must not write.
"""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.types import BooleanType, PrimitiveType
from skipstone_core.contract.reports import MAX_LISTED_PROPERTIES, PropertyFindings
from skipstone_core.errors import BadSpec
from skipstone_core.filter_sizes import FilterSize
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import (
    CODEC,
    DICTIONARY_BYTES,
    LEVEL,
    LEVELS,
    MAX_INFERRED,
    MERGE_MODE,
    METRICS_DEFAULT,
    METRICS_OF,
    MergeMode,
    filter_sizes,
    find_ignored,
    metrics_mode,
    value_problem,
)

#: Properties with sizes and counts, by their name in PyIceberg's TableProperties.
_SIZES = (
    "WRITE_TARGET_FILE_SIZE_BYTES",
    "PARQUET_ROW_GROUP_SIZE_BYTES",
    "PARQUET_ROW_GROUP_LIMIT",
    "PARQUET_PAGE_SIZE_BYTES",
    "PARQUET_PAGE_ROW_LIMIT",
)
#: A value of these that cannot be used stops a run; other properties are then as if they were not set.
_STOPPING = {CODEC, DICTIONARY_BYTES, MERGE_MODE, *(getattr(TableProperties, name) for name in _SIZES)}
_NAME_LENGTH = 120


def require_known_values(table: Table) -> None:
    """Raise BadSpec (INVALID_SPEC) when a property says something that writers cannot do."""
    for name in _SIZES:
        size_of(table, name)
    codec_of(table)
    dictionary_bytes_of(table)


def merges_on_read(table: Table) -> bool:
    """Return whether merges keep files and delete changed rows by position. Raises BadSpec (INVALID_SPEC)."""
    return _checked(table, MERGE_MODE, MergeMode.COPY_ON_WRITE).lower() == MergeMode.MERGE_ON_READ


def property_findings(table: Table) -> PropertyFindings:
    """The properties that loads and merges do not follow, as their own readers judge them."""
    mode = _refusal(merges_on_read, table)
    refused = _refusal(require_known_values, table) or mode
    types = {field.name: str(field.field_type) for field in table.schema().fields}
    unread = find_ignored(table.properties, types, deletes=not mode and merges_on_read(table))
    ignored = [name for name in unread if not _is_refused(table, name)]
    names = tuple(name if len(name) <= _NAME_LENGTH else f"{name[:_NAME_LENGTH]}…" for name in ignored)
    return PropertyFindings(ignored=names[:MAX_LISTED_PROPERTIES], ignored_total=len(names), refused=refused)


def _refusal(read: Callable[[Table], object], table: Table) -> str:
    try:
        read(table)
    except BadSpec as error:
        return str(error)
    return ""


def _is_refused(table: Table, name: str) -> bool:
    """Return whether a run stops at the property, which cannot be used, rather than ignore it."""
    if name == LEVEL:
        return bool(_refusal(codec_of, table))
    return name in _STOPPING


def size_of(table: Table, name: str) -> int:
    """The size or count that TableProperties calls ``name``. Raises BadSpec (INVALID_SPEC)."""
    default = getattr(TableProperties, f"{name}_DEFAULT")
    return int(_checked(table, getattr(TableProperties, name), str(default)))


def page_rows_of(table: Table) -> int:
    """Rows of a page as writers make them at most, whatever else the property says that cannot be used."""
    try:
        return max(1, size_of(table, "PARQUET_PAGE_ROW_LIMIT"))
    except BadSpec:
        return int(TableProperties.PARQUET_PAGE_ROW_LIMIT_DEFAULT)


def dictionary_bytes_of(table: Table) -> int | None:
    """The greatest dictionary of a column in a row group. Raises BadSpec (INVALID_SPEC)."""
    text = _checked(table, DICTIONARY_BYTES, "")
    return int(text) if text else None


def codec_of(table: Table) -> tuple[str, int | None]:
    """The compression codec and its level, None for the codec's own. Raises BadSpec (INVALID_SPEC)."""
    codec = _checked(table, CODEC, TableProperties.PARQUET_COMPRESSION_DEFAULT).lower()
    if codec not in LEVELS or not table.properties.get(LEVEL):
        return codec, None  # other engines ignore the level of such a codec too
    return codec, int(_checked(table, LEVEL, ""))


def metrics_of(table: Table) -> dict[str, str]:
    """The properties of metrics modes; one that cannot be read counts as not set, as for other engines."""
    given = table.properties
    metrics = {name: given[name] for name in given if name == METRICS_DEFAULT or name.startswith(METRICS_OF)}
    metrics = {name: mode for name, mode in metrics.items() if metrics_mode(mode) is None}
    most = given.get(MAX_INFERRED, "")
    if METRICS_DEFAULT not in metrics and most and value_problem(MAX_INFERRED, most) is None:
        left_out = [field.name for field in table.schema().fields[int(most) :]]
        metrics = {**{f"{METRICS_OF}{name}": "none" for name in left_out}, **metrics}
    return metrics


def bloom_filters_of(table: Table) -> dict[str, FilterSize]:
    """Columns at the top of the schema that get bloom filters, and of which size; booleans have none."""
    return filter_sizes(table.properties, _filterable(table.schema()))


def _filterable(schema: Schema) -> list[str]:
    kinds = [(field.name, field.field_type) for field in schema.fields]
    return [name for name, kind in kinds if isinstance(kind, PrimitiveType) and not isinstance(kind, BooleanType)]


def _checked(table: Table, name: str, default: str) -> str:
    text = table.properties.get(name, default).strip()
    if name in table.properties and (problem := value_problem(name, text)):
        where = ".".join(table.name())
        message = f"the property {name!r} of {where} cannot be used: {problem}."
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.properties")
    return text
