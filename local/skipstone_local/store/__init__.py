"""Objects in SQLite: one counter of versions, a log of changes for watches, a transaction for each request."""

from skipstone_local.store.changes import Compacted, JsonObject, ObjectPlace, StoredChange
from skipstone_local.store.database import ForeignLayout
from skipstone_local.store.objects import Store, Transaction

__all__ = ["Compacted", "ForeignLayout", "JsonObject", "ObjectPlace", "Store", "StoredChange", "Transaction"]
