"""The Iceberg table properties that a Table may set: which there are, and which values each of them takes.

Read by the operator's schemas and checks, and by the data plane before it creates or writes a table. What is listed is
honored: by our writers, or by engines that read or maintain the table. Must not know tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from skipstone_core.filter_sizes import MOST_BYTES, FilterSize

#: What is wrong with a value and what to write instead, as one clause without a full stop; None: nothing.
Check = Callable[[str], str | None]

MERGE_MODE = "write.merge.mode"
CODEC = "write.parquet.compression-codec"
LEVEL = "write.parquet.compression-level"
METRICS_DEFAULT = "write.metadata.metrics.default"
MAX_INFERRED = "write.metadata.metrics.max-inferred-column-defaults"
METRICS_OF = "write.metadata.metrics.column."
BLOOM_FILTER_OF = "write.parquet.bloom-filter-enabled.column."
BLOOM_RATE_OF = "write.parquet.bloom-filter-fpp.column."
BLOOM_DISTINCT_OF = "write.parquet.bloom-filter-ndv.column."
BLOOM_BYTES = "write.parquet.bloom-filter-max-bytes"
DICTIONARY_BYTES = "write.parquet.dict-size-bytes"
#: Greatest size of anything, in bytes; a row group or file of more is a mistake.
_MOST_BYTES = 1 << 40
_MOST_INT = (1 << 31) - 1
_MOST_LONG = (1 << 63) - 1
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+([eE]-?[0-9]+)?")
#: Least and greatest level of the codecs that have levels.
LEVELS = {"zstd": (1, 22), "gzip": (1, 9), "brotli": (0, 11)}
DEFAULT_CODEC = "zstd"


class MergeMode(StrEnum):
    """The treatment of files in which rows change."""

    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"


@dataclass(frozen=True)
class Problem:
    """A property that cannot be used. ``message``: one clause without a full stop."""

    name: str
    message: str


def one_of(*values: str) -> Check:
    """Exactly one of ``values``, in any case, as Iceberg reads them."""
    known = ", ".join(values[:-1]) + f" or {values[-1]}"
    return lambda text: None if text.lower() in values else f"{shown(text)} is not known: write {known}"


def whole(low: int, high: int) -> Check:
    """A whole number from ``low`` to ``high``."""

    def check(text: str) -> str | None:
        fits = len(text) <= 20 and text.isascii() and text.isdigit() and low <= int(text) <= high
        return None if fits else f"{shown(text)} is not a whole number from {low} to {high}: write one"

    return check


def metrics_mode(text: str) -> str | None:
    """``none``, ``counts``, ``full`` or ``truncate(n)``."""
    mode = text.lower()
    inner = mode.removeprefix("truncate(").removesuffix(")")
    truncates = mode == f"truncate({inner})" and whole(1, 10_000)(inner) is None
    if truncates or mode in ("none", "counts", "full"):
        return None
    return f"{shown(text)} is not known: write none, counts, full or truncate(n) with n from 1 to 10000"


def between_zero_and_one(text: str) -> str | None:
    """A number greater than 0 and less than 1."""
    fits = len(text) <= 30 and _NUMBER.fullmatch(text) is not None and 0 < float(text) < 1
    return None if fits else f"{shown(text)} is not a number between 0 and 1: write one, such as 0.01"


def anything(_: str) -> str | None:
    """Any text."""
    return None


def shown(text: str) -> str:
    """A value as messages show it: never more than fits a line."""
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


#: Properties outside the list that our writers follow when they say one of these; an empty set: whatever they say.
_FOLLOWED: Mapping[str, frozenset[str]] = {
    "write.avro.compression-codec": frozenset(),
    "write.data.path": frozenset(),
    "write.delete.format.default": frozenset({"parquet"}),
    "write.delete.granularity": frozenset({"file"}),
    "write.distribution-mode": frozenset({"none"}),
    "write.format.default": frozenset({"parquet"}),
    "write.merge.distribution-mode": frozenset({"none"}),
    "write.merge.isolation-level": frozenset({"serializable", "snapshot"}),
    "write.metadata.compression-codec": frozenset({"none"}),
    "write.metadata.path": frozenset(),
    "write.object-storage.enabled": frozenset({"false"}),
    "write.parquet.bloom-filter-adaptive-enabled": frozenset(),
    "write.parquet.page-version": frozenset({"v1"}),
    "write.summary.partition-limit": frozenset(),
    "write.wap.enabled": frozenset({"false"}),
}
#: Beginnings of properties of how data is written, and of those that are for other statements, formats and engines.
_OF_WRITING = ("write.", "commit.")
_OF_OTHERS = (
    "write.avro.",
    "write.delete.distribution-mode",
    "write.delete.isolation-level",
    "write.delete.mode",
    "write.orc.",
    "write.spark.",
    "write.update.",
    "write.upsert.",
)
_OF_DELETE_FILES = "write.delete."
_OF_BLOOM_FILTERS = (BLOOM_FILTER_OF, BLOOM_RATE_OF, BLOOM_DISTINCT_OF)
_BOOLEAN = one_of("true", "false")
_BYTES = whole(1, _MOST_BYTES)
_COUNT = whole(1, _MOST_INT)

#: Every property with the check of its value.
PROPERTIES: Mapping[str, Check] = {
    "comment": anything,
    "history.expire.max-ref-age-ms": whole(1, _MOST_LONG),
    "history.expire.max-snapshot-age-ms": whole(1, _MOST_LONG),
    "history.expire.min-snapshots-to-keep": _COUNT,
    "read.split.target-size": _BYTES,
    MERGE_MODE: one_of(*MergeMode),
    "write.metadata.delete-after-commit.enabled": _BOOLEAN,
    METRICS_DEFAULT: metrics_mode,
    MAX_INFERRED: whole(0, _MOST_INT),
    "write.metadata.previous-versions-max": _COUNT,
    CODEC: one_of("zstd", "gzip", "snappy", "lz4", "brotli", "uncompressed"),
    LEVEL: whole(0, 22),
    BLOOM_BYTES: whole(1, MOST_BYTES),
    DICTIONARY_BYTES: whole(1, _MOST_INT),
    "write.parquet.page-row-limit": _COUNT,
    "write.parquet.page-size-bytes": whole(1, _MOST_INT),
    "write.parquet.row-group-limit": _COUNT,
    "write.parquet.row-group-size-bytes": _BYTES,
    "write.target-file-size-bytes": _BYTES,
}
#: The same for properties that end in the name of a column.
COLUMN_PROPERTIES: Mapping[str, Check] = {
    METRICS_OF: metrics_mode,
    BLOOM_FILTER_OF: _BOOLEAN,
    BLOOM_RATE_OF: between_zero_and_one,
    BLOOM_DISTINCT_OF: whole(1, _MOST_LONG),
}


def find_problems(properties: Mapping[str, str], columns: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the faults of the properties of a Table. ``columns``: types by name."""
    for name, value in properties.items():
        prefix = next(
            (column_property for column_property in COLUMN_PROPERTIES if name.startswith(column_property)), None
        )
        check = COLUMN_PROPERTIES[prefix] if prefix else PROPERTIES.get(name)
        if check is None:
            yield Problem(name, "it is not one of the properties that the resources reference lists: remove it")
        elif message := check(value) or (_wrong_column(name, prefix, columns) if prefix else None):
            yield Problem(name, message)
    yield from _wrong_level(properties)


def find_ignored(properties: Mapping[str, str], columns: Mapping[str, str], *, deletes: bool) -> list[str]:
    """The properties of a table, set by anybody, that our writers do not follow, by name.

    ``columns``: types by name. ``deletes``: whether merges write delete files.
    """
    listed = {name for name in properties if name in PROPERTIES or name.startswith(tuple(COLUMN_PROPERTIES))}
    wrong = {problem.name for problem in find_problems({name: properties[name] for name in listed}, columns)}
    others = {name for name, value in properties.items() if name not in listed and _is_ignored(name, value)}
    unused = () if deletes else _OF_DELETE_FILES
    return sorted(name for name in wrong | others if name.startswith(_OF_WRITING) and not name.startswith(unused))


def _is_ignored(name: str, value: str) -> bool:
    if name in _FOLLOWED:
        return bool(_FOLLOWED[name]) and value.strip().lower() not in _FOLLOWED[name]
    return not name.startswith(_OF_OTHERS)


def value_problem(name: str, value: str) -> str | None:
    """Return the fault of the value of a listed property."""
    return PROPERTIES[name](value)


def _wrong_column(name: str, prefix: str, columns: Mapping[str, str]) -> str | None:
    column = name.removeprefix(prefix)
    if column not in columns:
        return f"the table has no column {shown(column)}: name one of spec.columns"
    if prefix in _OF_BLOOM_FILTERS and columns[column] == "boolean":
        return f"column {shown(column)} is a boolean, which has no bloom filter: remove it"
    return None


def _wrong_level(properties: Mapping[str, str]) -> Iterator[Problem]:
    codec, level = properties.get(CODEC, DEFAULT_CODEC).strip().lower(), properties.get(LEVEL)
    if level is None or PROPERTIES[LEVEL](level) or PROPERTIES[CODEC](codec):
        return
    if codec not in LEVELS:
        yield Problem(LEVEL, f"the codec {codec} has no levels: remove it, or choose {', '.join(sorted(LEVELS))}")
    elif message := whole(*LEVELS[codec])(level):
        yield Problem(LEVEL, f"{message} for the codec {codec}")


def column_names(properties: Mapping[str, str], prefix: str, columns: Collection[str]) -> list[str]:
    """Those of ``columns`` for which the boolean property with ``prefix`` is on."""
    return [name for name in columns if properties.get(prefix + name, "").strip().lower() == "true"]


def filter_sizes(properties: Mapping[str, str], columns: Collection[str]) -> dict[str, FilterSize]:
    """Those of ``columns`` that have bloom filters; what cannot be read of their sizes counts as not set."""
    most = _usable(properties, BLOOM_BYTES, PROPERTIES[BLOOM_BYTES])
    sizes = {} if most is None else {"most_bytes": int(most)}
    return {
        name: replace(_asked_of(properties, name), **sizes)
        for name in column_names(properties, BLOOM_FILTER_OF, columns)
    }


def _asked_of(properties: Mapping[str, str], column: str) -> FilterSize:
    rate, distinct = (
        _usable(properties, prefix + column, COLUMN_PROPERTIES[prefix]) for prefix in (BLOOM_RATE_OF, BLOOM_DISTINCT_OF)
    )
    size = FilterSize() if rate is None else FilterSize(rate=float(rate))
    return size if distinct is None else replace(size, distinct=int(distinct))


def _usable(properties: Mapping[str, str], name: str, check: Check) -> str | None:
    text = properties.get(name, "").strip()
    return text if text and check(text) is None else None
