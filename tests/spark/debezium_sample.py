"""Records the feed of examples/debezium: `python -m tests.spark.debezium_sample examples/debezium/data/feeds`.

Debezium's own engine reads a small history of a real PostgreSQL. Times and positions differ in each recording.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.spark.debezium import Engine, engines
from tests.spark.postgres import postgres
from tests.spark.postgres_history import connect

MARKER = "done"
#: As docs/tutorials/debezium.md tells users to set them.
ENGINE = Engine(
    "shop",
    ("orders",),
    {
        "converter.schemas.enable": "false",
        "converter.replace.null.with.default": "false",
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
        # A machine with other work takes long to start it.
        "task.management.timeout.ms": "900000",
    },
    lines=5,
)
TABLE = "order_id bigint primary key, ordered_at timestamptz, customer text, price numeric(12,2)"
SNAPSHOT = (
    "(1, '2026-03-01 08:15:00+00', 'ada', 120.00)",
    "(2, '2026-03-01 09:30:00+00', 'grace', 75.50)",
    "(3, '2026-03-02 10:00:00+00', 'alan', 19.99)",
    "(4, '2026-03-02 11:45:00+00', 'edsger', 310.25)",
    "(5, '2026-03-03 12:00:00+00', 'grace', 42.00)",
)
#: Each is a transaction. With the tombstones of deletes they make nine messages, two files.
CHANGES = (
    "insert into orders values (6, '2026-03-04 08:00:00+00', 'barbara', 64.00)",
    "update orders set price = 70.00 where order_id = 2",
    "delete from orders where order_id = 3",
    "update orders set price = 60.00 where order_id = 6",
    "update orders set order_id = 50 where order_id = 5",
    "insert into orders values (7, '2026-03-05 09:00:00+00', 'ada', 15.75)",
)


def main() -> None:
    """Write the files of the topic below the folder that is named."""
    target = Path(sys.argv[1]) / ENGINE.topic("orders")
    folder = Path(tempfile.mkdtemp(prefix="skipstone-debezium-"))
    with postgres("127.0.0.1", "wal_level=logical") as server:
        connection = connect(server.port)
        execute(connection, f"create table orders ({TABLE})", f"create table {MARKER} (id int primary key)")
        execute(connection, f"insert into orders values {', '.join(SNAPSHOT)}")
        with engines(folder, server.port, MARKER, (ENGINE,)) as running:
            while not (folder / ENGINE.topic("orders") / "000001.json").exists():
                time.sleep(0.1)
            for change in CHANGES:
                execute(connection, change)
            execute(connection, f"insert into {MARKER} values (1)")
            running.wait_done()
        connection.close()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / ENGINE.topic("orders"), target)
    shutil.rmtree(folder)


def execute(connection: Any, *statements: str) -> None:
    """Run ``statements`` in one transaction."""
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    connection.commit()


if __name__ == "__main__":
    main()
