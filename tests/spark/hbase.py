"""A real HBase in one process with its Thrift server, on local files; and copies of its tables, set back or in part.

The jars are fetched once and kept under ``.cache/jars``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import happybase
from skipstone.indexes.stores.hbase.client import HBaseTable, StoreUnavailable
from skipstone_core.contract.stores import HBaseRef, ThriftProtocol, ThriftTransport

from tests.ports import free_port
from tests.spark.jars import resolved_jars

VERSION = "2.6.1"
JARS = (f"org.apache.hbase:hbase-thrift:{VERSION}",)
PROGRAM = Path(__file__).parent / "java" / "HBaseServer.java"
#: What HBase's own scripts open for Java 17.
OPENS = [
    option
    for package in ("lang", "lang.reflect", "nio", "util", "util.concurrent")
    for option in ("--add-opens", f"java.base/java.{package}=ALL-UNNAMED")
] + ["--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED"]
LOGGING = """
log4j.rootLogger=WARN, c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%d %p %c{2} %m%n
"""
START_TRIES = 300
STOP_SECONDS = 300
SESSION_MILLISECONDS = str(3600 * 1000)
Cells = dict[bytes, dict[bytes, bytes]]


@contextmanager
def hbase_server(
    root: Path, *options: str, host: str = "127.0.0.1", heap: str = "1g", kept_port: int = 0
) -> Iterator[int]:
    """The port of the Thrift server of a new HBase below ``root``, at ``host``; ends with the block.

    ``options``: more of the Thrift server's. ``heap``: most memory of its heap, as Java takes it. ``kept_port``: the
    port of one that writes all it has when it ends, and goes on with it when it is started again.
    """
    port = kept_port or free_port()
    settings = {
        "hbase.rootdir": f"file://{root}/hbase",
        "hbase.tmp.dir": f"{root}/tmp",
        "hbase.cluster.distributed": "false",
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.zookeeper.quorum": "127.0.0.1",
        "hbase.zookeeper.property.dataDir": f"{root}/zookeeper",
        "hbase.zookeeper.property.clientPort": str(free_port()),
        "hbase.master.hostname": "localhost",
        "hbase.regionserver.hostname": "localhost",
        "hbase.wal.provider": "filesystem",
        "hbase.client.retries.number": "3",
        # a machine that stands still for minutes, such as one that measures something else, must not end it
        "zookeeper.session.timeout": SESSION_MILLISECONDS,
        "hbase.zookeeper.property.maxSessionTimeout": SESSION_MILLISECONDS,
        **dict.fromkeys(("hbase.master.port", "hbase.regionserver.port"), "0"),
        **dict.fromkeys(("hbase.master.info.port", "hbase.regionserver.info.port", "hbase.thrift.info.port"), "-1"),
    }
    conf = root / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    pairs = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    (conf / "hbase-site.xml").write_text(f"<configuration>{''.join(pairs)}</configuration>")
    (conf / "log4j.properties").write_text(LOGGING)
    classes = ":".join(map(str, (conf, *resolved_jars("hbase", JARS))))
    command = ["java", *OPENS, f"-Xmx{heap}", "-XX:+UseSerialGC", "-cp", classes, str(PROGRAM)]
    with (
        (root / "hbase.log").open("wb") as log,
        subprocess.Popen(
            [*command, "-p", str(port), "-b", host, *options, "start"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as server,
    ):
        try:
            _wait(server, _ref(host, port, options), root / "hbase.log")
            yield port
        finally:
            if kept_port:
                server.terminate()
                server.wait(STOP_SECONDS)
            server.kill()


def _ref(host: str, port: int, options: tuple[str, ...]) -> HBaseRef:
    transport = ThriftTransport.FRAMED if "-f" in options else ThriftTransport.BUFFERED
    protocol = ThriftProtocol.COMPACT if "-c" in options else ThriftProtocol.BINARY
    return HBaseRef(host=host, port=port, table="started", transport=transport, protocol=protocol, timeout_seconds=60)


def _wait(server: subprocess.Popen[bytes], ref: HBaseRef, log: Path) -> None:
    """Return when the master makes tables, which it does last."""
    for _ in range(START_TRIES):
        if server.poll() is not None:
            break
        with suppress(StoreUnavailable):
            HBaseTable(ref, waits=()).ensure()
            return
        with suppress(subprocess.TimeoutExpired):
            server.wait(0.5)
    raise RuntimeError(f"HBase did not start: {log.read_text()[-3000:]}")


def cells_of(ref: HBaseRef) -> Cells:
    """All cells of a table."""
    with _connected(ref) as connection:
        return {row: dict(cells) for row, cells in connection.table(ref.table).scan()}


def wipe(ref: HBaseRef) -> None:
    """Remove a table."""
    with _connected(ref) as connection:
        connection.delete_table(ref.table, disable=True)


def restore(ref: HBaseRef, cells: Cells, keep: Callable[[bytes], bool] = lambda _: True) -> None:
    """Set a table back to a copy, or to its rows that ``keep`` keeps."""
    with suppress(Exception):
        wipe(ref)
    HBaseTable(ref).ensure()
    with _connected(ref) as connection, connection.table(ref.table).batch(batch_size=100) as batch:
        for row, named in cells.items():
            if keep(row):
                batch.put(row, named)


def remove_cells(ref: HBaseRef, chosen: Callable[[bytes, bytes], bool]) -> int:
    """Remove cells by their row and name; how many there were."""
    count = 0
    with _connected(ref) as connection:
        for row, named in list(connection.table(ref.table).scan()):
            names = [name for name in named if chosen(row, name)]
            if names:
                connection.table(ref.table).delete(row, names)
                count += len(names)
    return count


@contextmanager
def _connected(ref: HBaseRef) -> Iterator[happybase.Connection]:
    connection = happybase.Connection(ref.host, ref.port, timeout=60_000)
    try:
        yield connection
    finally:
        connection.close()
