"""Stores outside the catalog that hold the entries of an index, as requests and index tables name them.

Imported by requests, by the operator for the fields of a SecondaryIndex, and by the data plane, which reaches them.
Data only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from skipstone_core.codec import camel, encode

MAX_TIMEOUT_SECONDS = 600


class StoreType(StrEnum):
    """The types of stores."""

    HBASE = "HBase"


class ThriftTransport(StrEnum):
    """How messages of a Thrift server are cut: Buffered is what HBase's server uses unless it is told otherwise."""

    BUFFERED = "Buffered"
    FRAMED = "Framed"


class ThriftProtocol(StrEnum):
    """How messages of a Thrift server are written: Binary is what HBase's server uses unless it is told otherwise."""

    BINARY = "Binary"
    COMPACT = "Compact"


@dataclass(frozen=True, kw_only=True)
class HBaseRef:
    """A table of HBase, reached by HBase's Thrift server (its first interface) at ``host`` and ``port``.

    ``table``: its name, with a namespace before ``:`` if it is not in the default one. ``tls``: whether the server, or
    what stands before it, takes TLS connections. ``timeout_seconds``: for each answer.
    """

    host: str
    port: int = 9090
    table: str = "skipstone"
    transport: ThriftTransport = ThriftTransport.BUFFERED
    protocol: ThriftProtocol = ThriftProtocol.BINARY
    tls: bool = False
    timeout_seconds: int = 30

    @property
    def type(self) -> StoreType:
        """The type of the store."""
        return StoreType.HBASE

    def __str__(self) -> str:
        """The table as messages name it."""
        return f"hbase://{self.host}:{self.port}/{self.table}"

    @property
    def settings(self) -> str:
        """All of it in one line, as statuses show it: what is not usual follows the name."""
        shown = ("transport", "protocol", "tls", "timeout_seconds")
        unusual = [name for name in shown if getattr(self, name) != getattr(HBaseRef, name)]
        texts = [f"{camel(name)}={json.dumps(encode(getattr(self, name)))}".replace('"', "") for name in unusual]
        return f"{self}?{'&'.join(texts)}" if texts else str(self)
