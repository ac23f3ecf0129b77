"""The store of an index outside its catalog, as a SecondaryIndex names it.

Imported by the SecondaryIndex. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from skipstone_core.contract.stores import (
    MAX_TIMEOUT_SECONDS,
    HBaseRef,
    StoreType,
    ThriftProtocol,
    ThriftTransport,
)

from skipstone_operator.resources.rules.markers import Doc

HOST = "^[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?$"
TABLE = "^([A-Za-z0-9_]{1,64}:)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"


@dataclass(frozen=True, kw_only=True)
class IndexStore:
    """A key-value store that holds the entries of an index."""

    type: Annotated[
        StoreType, Doc("Kind of store. HBase is reached by its Thrift server of the first interface. Never changes.")
    ]
    host: Annotated[
        str,
        Doc(
            "Name or IPv4 address of the Thrift server, as pods of runs reach it.",
            min_length=1,
            max_length=253,
            pattern=HOST,
            help="store.host must be a host name or an IPv4 address, without scheme and port: write for example "
            "hbase-thrift.data.svc",
        ),
    ]
    port: Annotated[int, Doc("Port of the Thrift server.", minimum=1, maximum=65535)] = HBaseRef.port
    table: Annotated[
        str,
        Doc(
            "Table of HBase, with its namespace before ':' if it is not in the default one. Several indexes can share "
            "a table. A reindex creates it if it does not exist.",
            min_length=1,
            max_length=193,
            pattern=TABLE,
            help="store.table must be a name of letters, digits, '_', '-' and '.', with a namespace before ':' if it "
            "has one: write for example skipstone or lake:skipstone",
        ),
    ] = HBaseRef.table
    transport: Annotated[
        ThriftTransport, Doc("Buffered, or Framed if hbase.regionserver.thrift.framed of the server is true.")
    ] = HBaseRef.transport
    protocol: Annotated[
        ThriftProtocol, Doc("Binary, or Compact if hbase.regionserver.thrift.compact of the server is true.")
    ] = HBaseRef.protocol
    tls: Annotated[
        bool,
        Doc(
            "Whether the server takes TLS connections. Runs trust the usual authorities and those of caBundleRef of "
            "the Warehouse. If the server asks for a certificate of the client, name the keys "
            "SKIPSTONE_HBASE_CERTIFICATE and SKIPSTONE_HBASE_KEY, both in PEM, in credentialsSecretRef of the "
            "Warehouse."
        ),
    ] = HBaseRef.tls
    timeout_seconds: Annotated[int, Doc("How long to wait for an answer.", minimum=1, maximum=MAX_TIMEOUT_SECONDS)] = (
        HBaseRef.timeout_seconds
    )

    def ref(self) -> HBaseRef:
        """Return it as requests of runs name it."""
        return HBaseRef(
            host=self.host,
            port=self.port,
            table=self.table,
            transport=self.transport,
            protocol=self.protocol,
            tls=self.tls,
            timeout_seconds=self.timeout_seconds,
        )
