"""A server that plans scans in a process of its own, and sessions of stock Spark before it.

Used by the tests of engines that let a server plan.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
from pyspark.sql import SparkSession
from skipstone_core.contract.planning import (
    METRICS_PATH,
    PORT_VARIABLE,
    READY_PATH,
    SETTINGS_VARIABLE,
    TOKENS_VARIABLE,
    PlanningSettings,
)

from tests.ports import answering_port

TOKEN = "the-token-of-the-tests"
START_SECONDS = 300
#: How many queries are run as one: starting each costs more than answering it.
TOGETHER = 25
_ROW = "to_json(struct(*), map('ignoreNullFields', 'false'))"


@contextmanager
def planning_server(
    settings: PlanningSettings, folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address of a server with ``settings``; ends with the block. ``folder``: for its log and settings."""
    with planning_process(settings, folder, variables) as (address, _):
        yield address


@contextmanager
def planning_process(
    settings: PlanningSettings, folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of such a server as soon as it is ready, and its process."""
    file, log_file = folder / "planning.json", folder / "planning.log"
    file.write_text(settings.to_json())
    environment = {
        **os.environ,
        SETTINGS_VARIABLE: str(file),
        TOKENS_VARIABLE: TOKEN,
        PORT_VARIABLE: "0",
        "SKIPSTONE_CACHE_DIR": str(folder / "planning-cache"),
        **(variables or {}),
    }
    with log_file.open("wb") as log:
        command = [sys.executable, "-m", "skipstone.serving"]
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            port = answering_port(server, _is_ready, log_file, seconds=START_SECONDS)
            yield f"http://127.0.0.1:{port}", server
        finally:
            server.terminate()
            server.wait(300)


def _is_ready(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}{READY_PATH}", timeout=30).ok
    except requests.RequestException:
        return False


def served_settings(address: str, name: str = "served") -> dict[str, str]:
    """What a user of Spark sets for a catalog that ``address`` plans."""
    catalog = f"spark.sql.catalog.{name}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": address,
        f"{catalog}.token": TOKEN,
        f"{catalog}.scan-planning-mode": "server",
        f"{catalog}.cache-enabled": "false",
    }


def configured(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """``session`` with ``settings``."""
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def together(queries: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
    """Queries with the one that has all of their rows: the number of a query, and a row as JSON."""
    for first in range(0, len(queries), TOGETHER):
        some = queries[first : first + TOGETHER]
        yield (
            some,
            " union all ".join(
                f"select {number} as query, {_ROW} as row from ({text})" for number, text in enumerate(some)
            ),
        )


def answers(session: SparkSession, queries: Sequence[str], names: Mapping[str, str]) -> dict[str, list[str]]:
    """The rows of each query, sorted; the error in their place for those that fail."""
    found: dict[str, list[str]] = {}
    for some, text in together(queries):
        try:
            found |= _rows(session, some, text.format_map(names))
        except Exception:  # noqa: BLE001 - which of them fails, and how, is seen one by one
            for query in some:
                found |= {query: _alone(session, query, names)}
    return found


def _rows(session: SparkSession, queries: Sequence[str], text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {query: [] for query in queries}
    for row in session.sql(text).collect():
        found[queries[row.query]].append(row.row)
    return {query: sorted(rows) for query, rows in found.items()}


def _alone(session: SparkSession, query: str, names: Mapping[str, str]) -> list[str]:
    ((_, text),) = together([query])
    try:
        return _rows(session, [query], text.format_map(names))[query]
    except Exception as error:  # noqa: BLE001 - an answer like any other
        return [f"{type(error).__name__}: {cause(error)}"]


def cause(error: BaseException) -> str:
    """The last cause that the text of an error names."""
    lines = [line for line in str(error).splitlines() if line.startswith("Caused by")]
    return (lines or str(error).splitlines() or [""])[-1 if lines else 0][:300]


def planned_files(address: str) -> tuple[int, int]:
    """Files of all snapshots that were planned, and those that were left to be read."""
    text = requests.get(address + METRICS_PATH, timeout=60).text
    numbers = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return tuple(int(float(numbers[f"skipstone_planning_files{kind}_total"])) for kind in ("", "_left"))  # type: ignore[return-value]
