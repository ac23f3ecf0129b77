"""What an index of each type does in its own way: a class for each type.

Called where indexes are defined and asked, which name no type. Must not read files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyiceberg.types import IcebergType, IntegerType, NestedField
from skipstone_core.contract.indextypes import IndexType
from skipstone_core.indexing.indexes import IndexDefinition
from skipstone_core.keys import UNFIT_FOR_BUCKETS, is_bucketed

from skipstone.indexes.keytests import Test

_BUCKET_FIELD = 12


class IndexKind:
    """The type Lookup, from which others differ. ``tells_values``: whether keys are values of columns, not less."""

    tells_values: ClassVar[bool] = True
    #: Columns of the index table by which its files are divided, besides those of every index.
    partitions: ClassVar[tuple[NestedField, ...]] = ()

    def find_unfit(self, _kind: IcebergType, /) -> str | None:
        """Why a column that has keys cannot be one of this type, as the end of a sentence; None when it can."""
        return None

    def keys(self, stored: pa.Array, _definition: IndexDefinition, /) -> pa.Array:
        """The keys of entries for values of a key column in their stored form."""
        return stored

    def entry_test(self, test: Test, _definition: IndexDefinition, /) -> Test:
        """The test of entries for a test of rows: it passes where that one does, and maybe elsewhere."""
        return test


class CoveringKind(IndexKind):
    """The type Covering: entries of equal keys are in one bucket."""

    partitions = (NestedField(_BUCKET_FIELD, "bucket", IntegerType(), doc="bucket of the keys; null: any"),)

    def find_unfit(self, kind: IcebergType, /) -> str | None:
        """Of a type by which Spark shuffles rows in another way."""
        return None if is_bucketed(str(kind)) else UNFIT_FOR_BUCKETS


class StoredKind(IndexKind):
    """The type Lookup in a store outside the index table, which holds hashes of keys."""

    tells_values = False


KINDS: Mapping[IndexType, IndexKind] = {IndexType.LOOKUP: IndexKind(), IndexType.COVERING: CoveringKind()}

_IN_STORE = StoredKind()


def kind_of(definition: IndexDefinition) -> IndexKind:
    """What an index does by its type."""
    return KINDS[definition.type] if definition.store is None else _IN_STORE
