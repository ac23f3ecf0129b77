"""Messages of Maxwell as changes.

Called by ``files`` for each line. Source: Maxwell's documentation, "Data Format" and "Bootstrapping".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone_core.merging.feeds import DELETE, NO_ROW, UPSERT

from skipstone.sources.feeds.deletedkeys import require_keys
from skipstone.sources.feeds.positions import maxwell_mark
from skipstone.sources.feeds.shapes import NOWHERE, Change, FeedError, Fields, Semantics, TableChoice

_WRITES = ("insert", "update", "bootstrap-insert")
#: Messages that tell of no row.
_SKIPPED = frozenset({"bootstrap-start", "bootstrap-complete", "heartbeat", "table-create", "table-alter",
                      "database-create", "database-alter"})  # fmt: skip

#: The table by which bootstraps are asked for: Maxwell writes its rows among the others, whatever it filters.
_OWN = "maxwell.bootstrap"


@dataclass(frozen=True, kw_only=True)
class MaxwellReader:
    """Reads messages with ``data`` and ``old``; ``keys``: the columns that name a row, ``choice``: of which tables."""

    keys: tuple[str, ...]
    choice: TableChoice

    def changes(self, message: Fields, line: int, _columns: Semantics) -> Iterator[Change]:
        """What ``message`` does: nothing, one change, or two when a key changes. Raises FeedError."""
        kind = message.get("type")
        table = f"{message.get('database')}.{message.get('table')}"
        is_skipped = isinstance(kind, str) and kind in _SKIPPED
        if is_skipped or table == _OWN or not self.choice.takes(table):
            yield Change(NO_ROW, {}, NOWHERE, line)
            return
        data = message.get("data")
        if kind not in (*_WRITES, "delete"):
            raise FeedError(
                "its type is none of insert, update, delete and those of bootstrapping: leave such messages out of the "
                "feed"
            )
        if not isinstance(data, Mapping) or not message.get("table"):
            raise FeedError("it is not a message of Maxwell, which has 'database', 'table' and 'data'")
        mark = maxwell_mark(message, self.choice.name_of(table))
        keys = dict(zip(self.keys, require_keys(data, self.keys), strict=True))
        if kind == "delete":
            yield Change(DELETE, keys, mark, line)
            return
        old, is_update = message.get("old"), kind == "update"
        if kind == "update" and isinstance(old, Mapping):
            before = {**keys, **{key: old[key] for key in self.keys if old.get(key) is not None}}
            if before != keys:
                yield Change(DELETE, before, mark, line)
                is_update = False
            data = {**dict.fromkeys(old), **data}  # with output_nulls=false, what became null is in old only
        yield Change(UPSERT, data, mark, line, is_update)
