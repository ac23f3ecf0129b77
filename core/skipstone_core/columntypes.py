"""Types and names of columns that Skipstone, or an engine beside it, does not read or make.

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

#: Names of Iceberg's own columns: Spark reads no row of a table that has a column of such a name.
METADATA_NAMES: Final = (
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
)
#: What names of Skipstone's own columns begin with, which run beside those of a table.
OWN_PREFIX: Final = "_skipstone_"


def find_name_problem(name: str) -> str | None:
    """Why no table should get a column of this name, as the end of a sentence; None when it may."""
    if not name:
        return "has no name, which Avro and Spark cannot say"
    if name.lower() in METADATA_NAMES:
        return "has the name of a column of Iceberg's own, and Spark would read no row of the table"
    return "has a name that Skipstone keeps for columns of its own" if name.startswith(OWN_PREFIX) else None


def is_closed_to_spark(type_name: str) -> bool:
    """Return whether Spark cannot open a table that has a column of this Iceberg type."""
    return type_name.strip().lower() in CLOSED_TO_SPARK


def is_opaque(type_name: str) -> bool:
    """Return whether a column of this Iceberg type holds values that are moved as they are."""
    return type_name.strip().lower().partition("(")[0] in OPAQUE
