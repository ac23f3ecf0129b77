"""Columns whose values a list of files would have to carry, and cannot: clients would read null, or fail.

Iceberg's clients take columns of identity partitions from the list, in the types of the newest schema, and the numbers
of last changes, which its JSON leaves out. Must not know files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from skipstone.compat.pyiceberg import field_ids

_LAST_CHANGE = "_last_updated_sequence_number"
_LINEAGE_VERSION = 3


@dataclass(frozen=True)
class WantedColumns:
    """The columns that a client reads of a snapshot: ``names``, in lower case, and field ids of those that it tests.

    ``schema``: of the snapshot.
    """

    schema: Schema
    names: Collection[str]
    tested: frozenset[int]

    def has(self, field_id: int) -> bool:
        """Return whether the column, or what it is a part of, is wanted."""
        name = self.schema.find_column_name(field_id)
        parts = name.lower().split(".") if name else []
        return field_id in self.tested or any(".".join(parts[: count + 1]) in self.names for count in range(len(parts)))


def require_carried(table: Table, snapshot_id: int | None, wanted: WantedColumns) -> None:
    """Raise BadSpec when the list of files of a snapshot cannot carry a column that is ``wanted``.

    ``snapshot_id``: None for whoever reads the newest one by the newest schema.
    """
    if table.format_version >= _LINEAGE_VERSION and _LAST_CHANGE in wanted.names:
        raise _refused(_LAST_CHANGE, "lists of files do not carry when rows were last changed")
    if snapshot_id is None:
        return
    refs = table.metadata.refs.values()
    is_tip = any(ref.snapshot_id == snapshot_id and ref.snapshot_ref_type == SnapshotRefType.BRANCH for ref in refs)
    newest = field_ids(table.schema())
    for field_id in _identities(table):
        if field_id not in field_ids(wanted.schema) or not wanted.has(field_id):
            continue
        name = wanted.schema.find_column_name(field_id) or ""
        if field_id not in newest:
            raise _refused(name, "the table was partitioned by it and it is dropped, so that lists of files lack it")
        now, then = table.schema().find_type(field_id), wanted.schema.find_type(field_id)
        if not is_tip and now != then and not isinstance(now, DecimalType):
            raise _refused(name, f"a partition of it was a {then} then and is told as a {now} now")


def _identities(table: Table) -> Iterator[int]:
    """The columns by whose values the table is or was partitioned."""
    for spec in table.specs().values():
        for part in spec.fields:
            if isinstance(part.transform, IdentityTransform):
                yield part.source_id


def _refused(name: str, why: str) -> BadSpec:
    message = f"the column {name} cannot be read by this plan: {why}; let the client plan this read "
    return BadSpec(Reason.INVALID_SPEC, message + "(scan-planning-mode client)", field="select")
