"""Random histories of a table and of a store that others empty, set back and damage; and the ways to reach a store.

Runs in `make soak-hbase` only: SKIPSTONE_SOAK_CASES steps drawn by SKIPSTONE_SOAK_SEED. Every step checks a lookup or a
merge against all rows.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest
from skipstone.indexes.stores.hbase.client import Cell, HBaseTable, Row, StoreUnavailable
from skipstone.indexes.stores.hbase.connections import CERTIFICATE_VARIABLE, KEY_VARIABLE
from skipstone_core.contract.stores import HBaseRef, ThriftProtocol, ThriftTransport

from tests.spark.hbase import Cells, cells_of, hbase_server, remove_cells, restore, wipe
from tests.spark.hbase_bed import ROWS, HBaseBed

pytestmark = pytest.mark.soak
SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "60"))
SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", "1"))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A running HBase."""
    with hbase_server(tmp_path_factory.mktemp("hbase") / "server") as port:
        yield port


@dataclass
class History:
    """A table and its store, what is done to them, and copies of the store that were kept."""

    bed: HBaseBed
    random: Random
    copies: list[Cells] = field(default_factory=list)

    def keys(self) -> set[int]:
        """Keys of which most are in the table."""
        files = self.bed.files + 1
        return {1000 * self.random.randrange(1, ROWS) + self.random.randrange(files) for _ in range(5)}

    def add(self) -> None:
        """Append a file."""
        self.bed.add()

    def reindex(self) -> None:
        """Bring the index up to date."""
        self.bed.reindex()
        assert self.bed.state.segments_missing == 0

    def rebuild(self) -> None:
        """Build all entries again."""
        self.bed.reindex(rebuild=f"full/{self.bed.runs}")

    def merge(self) -> None:
        """Merge some keys."""
        self.bed.merged([{"id": key} for key in self.keys()])

    def keep(self) -> None:
        """Copy the store."""
        self.copies.append(cells_of(self.bed.store))

    def set_back(self) -> None:
        """Restore some copy."""
        restore(self.bed.store, self.random.choice(self.copies))

    def tear(self) -> None:
        """Restore a part of the newest copy."""
        edge = self.random.randrange(256)
        restore(self.bed.store, self.copies[-1], keep=lambda row: row[0] < edge)

    def damage(self) -> None:
        """Remove some cells."""
        part = self.random.random()
        remove_cells(self.bed.store, lambda _row, _name: self.random.random() < part)

    def empty(self) -> None:
        """Remove all cells."""
        wipe(self.bed.store)
        HBaseTable(self.bed.store).ensure()

    def check(self) -> None:
        """Look some keys up."""
        self.bed.looked_up(f"id in ({', '.join(map(str, self.keys()))})")


STEPS = ("add", "reindex", "rebuild", "merge", "keep", "set_back", "tear", "damage", "empty")


def test_no_history_of_table_and_store_loses_or_doubles_a_row(port: int, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, HBaseRef(host="127.0.0.1", port=port, table="random", timeout_seconds=60))
    history = History(bed, Random(SEED))
    for step in ("add", "reindex", "keep", *history.random.choices(STEPS, k=SOAK_CASES)):
        print(step, flush=True)
        getattr(history, step)()
        history.check()


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder, timeout=300)


def certify(folder: Path) -> None:
    """An authority, and a certificate of it for localhost, which serves on both sides."""
    new = ["-newkey", "rsa:2048", "-nodes"]
    openssl(folder, "req", "-x509", *new, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")
    openssl(folder, "req", *new, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    signed = ["-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
    openssl(folder, "x509", *signed, "-extfile", "names", "-out", "server.crt")


@contextmanager
def tls_before(port: int, folder: Path) -> Iterator[int]:
    """The port of a proxy that takes TLS of clients with a certificate, and passes on to ``port``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(65_536):
                target.sendall(content)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                plain, _ = listener.accept()
                with suppress(OSError):
                    client = context.wrap_socket(plain, server_side=True)
                    server = socket.create_connection(("127.0.0.1", port))
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def test_tls_with_a_certificate_of_the_client(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certify(tmp_path)
    with tls_before(port, tmp_path) as front:
        ref = HBaseRef(host="localhost", port=front, table="tls", tls=True, timeout_seconds=60)
        with pytest.raises(StoreUnavailable, match="certificate"):  # of an authority that nobody trusts
            HBaseTable(ref, waits=()).ensure()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
        with pytest.raises(StoreUnavailable):
            HBaseTable(ref, waits=()).ensure()
        monkeypatch.setenv(CERTIFICATE_VARIABLE, (tmp_path / "server.crt").read_text())
        monkeypatch.setenv(KEY_VARIABLE, (tmp_path / "server.key").read_text())
        check_written(ref)
        with pytest.raises(StoreUnavailable):
            HBaseTable(replace(ref, tls=False, timeout_seconds=5), waits=()).get([b"row"])


def check_written(ref: HBaseRef) -> None:
    """Cells of any size come back."""
    table = HBaseTable(ref)
    table.ensure()
    cells = [Cell(bytes([number]), bytes([number]) * size) for number, size in enumerate((0, 1, 300_000, 500_000))]
    table.put([Row(b"row", cells), Row(b"row2", cells[:1])])
    assert table.get([b"row", b"none", b"row2"]) == {
        b"row": {cell.name: cell.value for cell in cells},
        b"row2": {b"\0": b""},
    }
    table.remove([Row(b"row", cells[1:])])
    assert [row.key for row in table.scan_names(b"row")] == [b"row", b"row2"]
    table.close()


def test_framed_messages_in_the_compact_protocol(tmp_path: Path) -> None:
    with hbase_server(tmp_path / "server", "-f", "-c", "-nonblocking") as port:
        ref = HBaseRef(host="127.0.0.1", port=port, table="framed", timeout_seconds=60)
        check_written(replace(ref, transport=ThriftTransport.FRAMED, protocol=ThriftProtocol.COMPACT))
