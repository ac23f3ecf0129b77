"""Which format versions of Iceberg are written, and what keeps a table of one from being written.

Called by the runs before they begin, by every commit on the fresh head, and by whoever reports a table's state.
Must not write.
"""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType, TimestampNanoType, TimestamptzNanoType
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from skipstone.compat.lineage.opaque import Opaque, opaque_fields
from skipstone.compat.lineage.reading import VERSION
from skipstone.compat.pyiceberg import field_ids
from skipstone.tables.arrow import LINEAGE_NAMES
from skipstone.tables.catalogs import WRITABLE_FORMAT, find_loss

#: From this format version on rows have ids that outlive rewriting, and deletion vectors.
LINEAGE_FORMAT = VERSION
#: Format versions that loads, merges and compactions write.
WRITABLE_FORMATS = (WRITABLE_FORMAT, LINEAGE_FORMAT)
#: Property of a table whose files are encrypted.
_ENCRYPTION_KEY = "encryption.key-id"


def has_lineage(table: Table) -> bool:
    """Return whether rows of ``table`` have ids, and deleted rows are told by deletion vectors."""
    return bool(table.metadata.format_version >= LINEAGE_FORMAT)


def require_mergeable(table: Table) -> None:
    """Raise BadSpec (FORMAT_VERSION_UNSUPPORTED) unless loads, merges and compactions can write ``table`` without loss.

    Raises DependencyUnavailable (STORAGE_UNAVAILABLE) when its metadata file cannot be read.
    """
    if problem := _find_problem(table):
        raise _refused(table, problem)


def require_plain(table: Table) -> None:
    """Raise BadSpec (FORMAT_VERSION_UNSUPPORTED) if the files of ``table`` are encrypted."""
    if _ENCRYPTION_KEY in table.properties:
        raise _refused(table, "is encrypted, so its files cannot be read; query it with an engine that decrypts them")


def require_readable_metadata(table: Table) -> None:
    """Raise BadSpec (FORMAT_VERSION_UNSUPPORTED) unless all that ``table`` reaches can be told from its metadata.

    Raises also, as ``require_mergeable`` does, when a commit that changes no row would lose some of it.
    """
    if _ENCRYPTION_KEY in table.properties:
        raise _refused(table, "is encrypted, so its manifests cannot be read; maintain it with an engine that encrypts")
    if has_lineage(table) and (lost := find_loss(table)):
        raise _refused(table, _losing(lost))


def _refused(table: Table, problem: str) -> BadSpec:
    return BadSpec(Reason.FORMAT_VERSION_UNSUPPORTED, f"{'.'.join(table.name())} {problem}.")


def _losing(lost: str) -> str:
    return f"has {lost} in its metadata, which a commit would lose; write it with the engine that set it"


def _find_problem(table: Table) -> str | None:
    version = table.metadata.format_version
    if version not in WRITABLE_FORMATS:
        known = " and ".join(str(writable) for writable in WRITABLE_FORMATS)
        return f"has Iceberg format version {version}; Skipstone writes versions {known} only"
    return _find_lineage_problem(table) if has_lineage(table) else None


def _find_lineage_problem(table: Table) -> str | None:
    """Return the feature of a table of format version 3 that a commit of ours would lose or break."""
    if _ENCRYPTION_KEY in table.properties:
        return "is encrypted; Skipstone writes files in plain, so write it with an engine that encrypts"
    if names := {field.name for field in table.schema().fields}.intersection(LINEAGE_NAMES):
        return f"has a column {min(names)!r}, a name that row lineage takes; rename the column"
    fields = field_ids(table.schema()).values()
    if field := next((field for field in fields if _is_unwritten(field.field_type)), None):
        return (
            f"has a column {field.name!r} of type {field.field_type}, which Skipstone does not write; drop the column"
        )
    return _losing(lost) if (lost := find_loss(table)) else None


def _is_unwritten(kind: IcebergType) -> bool:
    """Return whether values of ``kind`` cannot be moved, or nothing is left of a column without values."""
    match kind:
        case ListType() | MapType():
            return any(not below.is_stored for _, below in opaque_fields(kind))
        case StructType():
            return all(isinstance(field.field_type, Opaque) and not field.field_type.is_stored for field in kind.fields)
    return isinstance(kind, TimestampNanoType | TimestamptzNanoType)


def is_lossless(table: Table) -> bool:
    """Return whether a commit that changes no row would leave all of the metadata as it is."""
    version = table.metadata.format_version
    return version < LINEAGE_FORMAT or (version == LINEAGE_FORMAT and not find_loss(table))
