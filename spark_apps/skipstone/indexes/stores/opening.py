"""Opens the store of an index: the one place that knows which there are.

Called by ``port.store_of``. The library of a store that is not used is not imported. Must not ask a store anything.
"""

from __future__ import annotations

from skipstone.indexes.stores.port import EntryStore
from skipstone.indexes.stores.table import TableStore
from skipstone.indexes.tables import IndexTable


def open_store(index: IndexTable) -> EntryStore:
    """The store of ``index``."""
    if index.stored.store is None:
        return TableStore(index)
    from skipstone.indexes.stores.hbase.store import HBaseStore

    return HBaseStore(index, index.stored.store)
