"""A client reads through planning servers while something else happens: it gets the rows of a snapshot, or an error.

What happens: replicas vanish in the middle of an answer, the catalog is slow, broken or cut off, storage loses a
manifest, others commit, delete, expire, rename, drop and create again, and indexes lag, break and go.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from skipstone_core.contract.requests import CatalogRef, CatalogType

from tests.examples import ALL_CASES, cases
from tests.spark.index_bed import Lake, index_on, local
from tests.spark.restserver import rest_catalog
from tests.unit.serving_bed import SCHEMA, Guard, Trouble, guard, rest_settings, serving

CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", cases(15, 300)))
SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", random.randrange(2**31) if ALL_CASES else 11))
BY_ID = index_on("id")
ROWS, FILES = 12, 5
TEXTS = ("x", "y", "z")


@dataclass
class Relay:
    """Between a client and replicas: each connection goes to the next replica. ``cut_after``: bytes of answers until
    the connection ends, as if the replica had been killed; None: never.
    """

    replicas: tuple[str, ...]
    address: str = ""
    cut_after: int | None = None
    taken: int = 0

    def serve(self, listening: socket.socket) -> None:
        """Relay until ``listening`` is closed."""
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                url = urlsplit(self.replicas[self.taken % len(self.replicas)])
                self.taken += 1
                threading.Thread(target=self._relay, args=(client, (url.hostname, url.port)), daemon=True).start()

    def _relay(self, client: socket.socket, replica: tuple[str, int]) -> None:
        with client, socket.create_connection(replica) as server:
            asking = threading.Thread(target=_pump, args=(client, server), daemon=True)
            asking.start()
            with suppress(OSError):
                while part := server.recv(65536):
                    if self.cut_after is not None:
                        part, self.cut_after = part[: self.cut_after], self.cut_after - len(part)
                        if self.cut_after < 0:
                            self.cut_after = None
                            client.sendall(part)
                            break
                    client.sendall(part)
            for end in (client, server):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            asking.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            sink.sendall(part)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def relay(*replicas: str) -> Iterator[Relay]:
    found = Relay(replicas)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=found.serve, args=(listening,))
        thread.start()
        try:
            yield found
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@dataclass
class Bed:
    """Two replicas behind ``between`` and ``relay``; others work on ``lake`` by the catalog itself."""

    lake: Lake
    between: Guard
    relay: Relay


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    root = tmp_path_factory.mktemp("faults")
    with rest_catalog(root) as uri, guard(uri) as between:
        lake = Lake(root, kind=CatalogRef(type=CatalogType.REST, uri=uri))
        settings = rest_settings(between.address, root, upstream_timeout_seconds=1, files_per_page=1)
        with serving(settings) as one, serving(settings) as other, relay(one, other) as found:
            yield Bed(lake, between, found)


@dataclass
class Case:
    """One table, what it held over time, and what happens while it is read."""

    bed: Bed
    name: str
    random: random.Random
    versions: list[list[tuple[int, str]]] = field(default_factory=list)
    undo: list[Callable[[], object]] = field(default_factory=list)

    @property
    def table(self) -> Table:
        return self.bed.lake.table(self.name)

    def new_rows(self, count: int) -> list[tuple[int, str]]:
        return [(self.random.randrange(40), self.random.choice(TEXTS)) for _ in range(count)]

    def append(self) -> None:
        rows = self.new_rows(ROWS)
        self.versions.append([*self.versions[-1], *rows])
        self.table.append(pa.table({"id": [row[0] for row in rows], "s": [row[1] for row in rows]}, schema=SCHEMA))

    def create(self) -> None:
        self.versions.append([])
        self.bed.lake.create(SCHEMA, self.name)
        for _ in range(FILES):
            self.append()

    # --- what happens ---

    def delete(self) -> None:
        number = self.random.randrange(40)
        self.versions.append([row for row in self.versions[-1] if row[0] != number])
        self.table.delete(f"id == {number}")

    def expire(self) -> None:
        old = [snapshot.snapshot_id for snapshot in self.table.metadata.snapshots[:-1]]
        self.table.maintenance.expire_snapshots().by_ids(old).commit()

    def drop(self) -> None:
        self.bed.lake.catalog.drop_table(("ns", self.name))

    def replace(self) -> None:
        self.drop()
        self.create()

    def rename(self) -> None:
        self.bed.lake.catalog.rename_table(("ns", self.name), ("ns", f"{self.name}_moved"))

    def index(self) -> None:
        self.bed.lake.reindex(BY_ID, name=self.name)

    def drop_index(self) -> None:
        self.bed.lake.catalog.drop_table(self.bed.lake.index_table(BY_ID, self.name).identifier)

    def damage_index(self) -> None:
        found = self.bed.lake.index_table(BY_ID, self.name)
        path = local(self.random.choice(found.files.files["path"].to_pylist()))
        self.random.choice((path.unlink, lambda: path.write_bytes(path.read_bytes()[:-40])))()

    def lose_manifest(self) -> None:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        listed = [snapshot.manifest_list, *(one.manifest_path for one in snapshot.manifests(self.table.io))]
        path = local(self.random.choice(listed))
        away = path.with_suffix(".away")
        path.rename(away)
        self.undo.append(lambda: away.rename(path))

    def cut_answer(self) -> None:
        self.bed.relay.cut_after = self.random.randrange(2_000)

    def nothing(self) -> None:
        pass

    # --- the client ---

    def prepare(self) -> None:
        """Make the table with an index that is there, lags or is not."""
        self.create()
        if self.random.random() < 0.8:
            self.index()
            if self.random.random() < 0.3:
                self.append()

    def read(self, catalog: Catalog) -> list[tuple[int, str]]:
        """The rows of a random scan. Raises AssertionError for rows of no version, and whatever the client raises."""
        condition, passes = self.condition()
        snapshots = [snapshot.snapshot_id for snapshot in self.table.metadata.snapshots]
        past = self.random.randrange(len(snapshots)) if self.random.random() < 0.3 else None
        before = len(self.versions) - 1
        table = catalog.load_table(("ns", self.name))
        found = table.scan(condition, snapshot_id=None if past is None else snapshots[past]).to_arrow()
        rows = sorted(zip(found["id"].to_pylist(), found["s"].to_pylist(), strict=True))
        versions = self.versions[before:] if past is None else [self.versions[past + 1]]
        assert rows in [sorted(filter(passes, version)) for version in versions], (condition, past)
        return rows

    def condition(self) -> tuple[str, Callable[[tuple[int, str]], bool]]:
        number, text = self.random.randrange(40), self.random.choice(TEXTS)
        some = [self.random.randrange(40) for _ in range(3)]
        return self.random.choice(
            [
                ("true", lambda row: True),
                (f"id == {number}", lambda row: row[0] == number),
                (f"id < {number}", lambda row: row[0] < number),
                (f"id in ({some[0]}, {some[1]}, {some[2]})", lambda row: row[0] in some),
                (f"id == {number} and s == '{text}'", lambda row: row == (number, text)),
                (f"id == {number} or id == {some[0]}", lambda row: row[0] in (number, some[0])),
            ]
        )

    def troubles(self) -> dict[str, Callable[[], Trouble | None]]:
        """What may happen, by name."""
        works = (
            *(self.append, self.delete, self.expire, self.drop, self.replace, self.rename, self.index),
            *(self.drop_index, self.damage_index, self.lose_manifest, self.cut_answer, self.nothing),
        )
        never = threading.Event()
        self.undo.append(never.set)
        return {
            **{work.__name__: _after(work) for work in works},
            "error": lambda: Trouble(self.random.choice((401, 403, 404, 500, 503)), b"{}"),
            "slow": lambda: Trouble(wait=never),
            "cut": lambda: Trouble(is_cut=True),
        }


def _after(work: Callable[[], object]) -> Callable[[], Trouble | None]:
    def done() -> None:
        with suppress(AssertionError, OSError, LookupError):  # there is no index to harm
            work()

    return done


def run_case(bed: Bed, number: int, name: str) -> str:
    """What came of one case: ``rows`` or the kind of an error. Raises AssertionError for wrong rows."""
    case = Case(bed, f"t{number}", random.Random(SEED + number))
    case.prepare()
    happens = case.troubles()[name]
    moment, seen = case.random.randrange(FILES + 4), 0

    def trouble(path: str) -> Trouble | None:
        nonlocal seen
        seen += "/tables/" in path
        if seen != moment or "/tables/" not in path:
            return None
        seen += 1
        return happens()

    catalog = load_catalog("c", type="rest", uri=bed.relay.address, **{"scan-planning-mode": "server"})
    bed.between.trouble = trouble
    try:
        case.read(catalog)
    except AssertionError:
        raise
    except Exception as error:  # noqa: BLE001 - any error is better than wrong rows
        return type(error).__name__
    finally:
        bed.between.trouble, bed.relay.cut_after = lambda path: None, None
        for undo in case.undo:
            undo()
    return "rows"


KINDS = (
    *("append", "delete", "expire", "drop", "replace", "rename", "index", "drop_index", "damage_index"),
    *("lose_manifest", "cut_answer", "nothing", "error", "slow", "cut"),
)


def test_whatever_happens_a_client_gets_the_rows_of_a_snapshot_or_an_error(bed: Bed) -> None:
    outcomes: dict[str, dict[str, int]] = {}
    for number in range(CASES):
        name = KINDS[number % len(KINDS)]
        try:
            outcome = run_case(bed, number, name)
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}, case {number}, {name}") from error
        kinds = outcomes.setdefault(name, {})
        kinds[outcome] = kinds.get(outcome, 0) + 1
    print(f"seed {SEED}: {outcomes}")
    assert outcomes["nothing"].keys() == {"rows"}
    assert sum(kinds.get("rows", 0) for kinds in outcomes.values()) > CASES / 3
