"""Types of columns that Skipstone, or an engine beside it, does not read or make.

Every plane names them by these words. Must not know schemas.
"""

from __future__ import annotations

from typing import Final

#: Types whose values are moved as they are, by the words that their names begin with; none is made or compared.
OPAQUE: Final = ("variant", "geometry", "geography", "unknown")
#: What is said of a column of such a type.
MOVED_ONLY: Final = "Skipstone moves its values as they are and makes none"
#: Types with which Spark 4.1 and Iceberg 1.12 open no column of a table, whichever columns a query names.
CLOSED_TO_SPARK: Final = ("time", "timestamp_ns", "timestamptz_ns")


def is_closed_to_spark(type_name: str) -> bool:
    """Whether Spark cannot open a table that has a column of this Iceberg type."""
    return type_name.strip().lower() in CLOSED_TO_SPARK


def is_opaque(type_name: str) -> bool:
    """Whether a column of this Iceberg type holds values that are moved as they are."""
    return type_name.strip().lower().partition("(")[0] in OPAQUE
