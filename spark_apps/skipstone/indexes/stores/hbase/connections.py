"""Connections to a Thrift server of HBase, with bounds for what a server sends that may be any other one.

Used by the client of this room only. The library believes every size that it reads, and raises whatever its decoder
meets in bytes that are not Thrift: here each of these is an error of transport or protocol. Must not ask anything.
"""

from __future__ import annotations

import os
import ssl
import struct
import tempfile
from pathlib import Path

import happybase
from Hbase_thrift import Hbase, TRowResult
from skipstone_core.contract.stores import HBaseRef, ThriftProtocol, ThriftTransport
from skipstone_core.ids import STORE_VARIABLES
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.protocol.cybin import ProtocolError  # type: ignore[attr-defined]
from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.thrift import TClient, TException
from thriftpy2.transport import (
    TBufferedTransport,
    TFramedTransport,
    TSocket,
    TSSLSocket,
    TTransportBase,
    TTransportException,
)

#: Variables with a certificate and its key in PEM, for servers that ask clients for one.
CERTIFICATE_VARIABLE, KEY_VARIABLE = f"{STORE_VARIABLES}CERTIFICATE", f"{STORE_VARIABLES}KEY"
#: Most bytes of an answer: many times what is asked for at once, and less than other servers' first four bytes say.
MAX_ANSWER_BYTES = 128 * 1024 * 1024
#: Bytes that are received at once.
_RECEIVED_BYTES = 1024 * 1024
#: What decoders raise for bytes that are not Thrift, besides errors of their own.
_UNDECODABLE = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, ProtocolError, RecursionError,
    SystemError, TypeError, ValueError, struct.error,
)  # fmt: skip


def connect(ref: HBaseRef) -> happybase.Connection:
    """Return an open connection to the server of ``ref``. Raises OSError and TException."""
    milliseconds = 1000 * ref.timeout_seconds
    connection = happybase.Connection(ref.host, ref.port, timeout=milliseconds, autoconnect=False)
    socket = (
        TSSLSocket(  # type: ignore[no-untyped-call]
            ref.host, ref.port, socket_timeout=milliseconds, ssl_context=_ssl_context()
        )
        if ref.tls
        else TSocket(host=ref.host, port=ref.port, socket_timeout=milliseconds)  # type: ignore[no-untyped-call]
    )
    cut = TFramedTransport if ref.transport is ThriftTransport.FRAMED else TBufferedTransport
    written = TCompactProtocol if ref.protocol is ThriftProtocol.COMPACT else TBinaryProtocol
    # the library has no options for any of this
    connection.transport = cut(_BoundedSocket(socket))
    connection.client = _Client(Hbase, written(connection.transport, decode_response=False))
    connection.open()
    return connection


class _BoundedSocket(TTransportBase):
    """A socket from which no answer of more than MAX_ANSWER_BYTES is read, nor a buffer for one made."""

    def __init__(self, socket: TSocket) -> None:
        self._socket = socket
        self._left = MAX_ANSWER_BYTES

    def read(self, size: int) -> bytes:
        """Return the next bytes, ``size`` at most. Raises TTransportException for more than an answer may have."""
        if size > self._left:
            raise TTransportException(
                message=f"it sends an answer of more than {MAX_ANSWER_BYTES} bytes, as servers do that are not HBase's "
                "Thrift server or have another transport"
            )
        received: bytes = self._socket.read(min(size, _RECEIVED_BYTES))  # type: ignore[no-untyped-call]
        self._left -= len(received)
        return received

    def write(self, data: bytes) -> None:
        """Send a question, whose answer is to come."""
        self._left = MAX_ANSWER_BYTES
        self._socket.write(data)  # type: ignore[no-untyped-call]

    def flush(self) -> None:
        """All is sent already."""

    def is_open(self) -> bool:
        """Return whether it is connected."""
        return bool(self._socket.is_open())  # type: ignore[no-untyped-call]

    def open(self) -> None:
        """Connect. Raises TTransportException."""
        self._socket.open()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """End the connection."""
        self._socket.close()  # type: ignore[no-untyped-call]


class _Client(TClient):
    """The library's client, whose answers are decoded or an error of the protocol."""

    def _recv(self, _api: str) -> object:
        """Return the answer. Raises OSError and TException."""
        try:
            answer = super()._recv(_api)
        except (OSError, TException):
            raise
        except _UNDECODABLE as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise _undecodable(f"its answer is not in this protocol of Thrift ({why})") from error
        if isinstance(answer, list) and any(isinstance(row, TRowResult) and not _is_whole(row) for row in answer):
            raise _undecodable("its answer has rows without a name or without cells")
        return answer


def _is_whole(row: TRowResult) -> bool:
    """Return whether a row has all parts: a decoder passes over those of another type."""
    return None not in (row.row, row.columns) and all(cell.value is not None for cell in row.columns.values())


def _undecodable(why: str) -> TProtocolException:
    return TProtocolException(TProtocolException.INVALID_DATA, why)  # type: ignore[no-untyped-call]


def _ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    certificate, key = os.environ.get(CERTIFICATE_VARIABLE), os.environ.get(KEY_VARIABLE)
    if certificate and key:
        with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads them from files only; the folder is ours alone
            paths = [Path(folder, "tls.crt"), Path(folder, "tls.key")]
            for path, text in zip(paths, (certificate, key), strict=True):
                path.write_text(text)
            context.load_cert_chain(paths[0], paths[1])
    return context
