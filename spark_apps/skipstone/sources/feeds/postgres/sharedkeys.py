"""Keys that two rows share until the end of a statement or transaction, as with deferrable constraints.

Called by the readers of feeds for each message that writes or removes a row. ``update t set id = id + 1`` moves row 1
to key 2 before row 2 leaves it: read one after the other, the change of row 2 would remove row 1. A row before the
change that is not the one last written under its key in the same transaction shows it. PostgreSQL logs whole rows
before changes only with REPLICA IDENTITY FULL, which deferrable keys need. Source: PostgreSQL's documentation of SET
CONSTRAINTS.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from skipstone.sources.feeds.deletedkeys import is_filler
from skipstone.sources.feeds.shapes import FeedError, Fields, Raw, Semantics

#: Rows of a transaction that are remembered.
_MOST = 1 << 16


@dataclass
class SharedKeys:
    """Remembers rows that a transaction brought under a key. ``keys``: the columns that name a row."""

    keys: tuple[str, ...]
    _logs_rows: bool = False
    _transaction: Raw = None
    _order: bytes = b""
    _written: dict[str, Fields] = field(default_factory=dict)

    def begin(self, transaction: Raw, order: bytes) -> None:
        """Go on with a message of ``transaction``; what comes again after a restart begins it again."""
        if transaction is None or transaction != self._transaction or order < self._order:
            self._written.clear()
        self._transaction, self._order = transaction, order

    def take_out(self, old: Fields, columns: Semantics) -> None:
        """Note that the row ``old`` changes or goes. Raises FeedError if its key is that of another row by now."""
        proofs = {
            name: value
            for name, value in old.items()
            if name not in self.keys and value is not None and not is_filler(value, (columns or {}).get(name))
        }
        self._logs_rows |= bool(proofs)
        written = self._written.pop(self._key(old), None)
        # By their text: NaN is not equal to itself
        if written and any(name in written and repr(written[name]) != repr(value) for name, value in proofs.items()):
            raise FeedError(
                "another row got the key of its row before that in the same transaction, as a deferrable key allows, "
                "so the row that it changes is not certain: name columns in keys that no two rows share at any time, "
                "such as a primary key that is not deferrable, or make the key NOT DEFERRABLE and merge a new snapshot"
            )

    def put(self, new: Fields) -> None:
        """Note that a row came under the key of ``new``, or is there with these values."""
        if self._logs_rows and self._transaction is not None:
            self._written[self._key(new)] = new
            if len(self._written) > _MOST:
                del self._written[next(iter(self._written))]

    def forget(self, new: Fields) -> None:
        """Note that the row ``new`` was changed by a message that does not tell the row before."""
        self._written.pop(self._key(new), None)

    def _key(self, row: Fields) -> str:
        return repr([row.get(name) for name in self.keys])
