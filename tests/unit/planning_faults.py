"""Reads through a planning server while something goes wrong, drawn by a number: what, when, and who reads what.

What is demanded of every read: its rows are those of one state that the table had while it was read, or it is an error.
When the fault is over, every replica answers with the rows as they are then.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import requests
from pyiceberg.catalog import load_catalog

from tests import s3proxy as storage
from tests.s3proxy import Proxy
from tests.spark.index_bed import Lake, local
from tests.unit.planning_filters import Condition, draw_condition
from tests.unit.planning_history import History, Row, names_of, spoil
from tests.unit.serving_bed import Guard, Trouble, error
from tests.unit.serving_replicas import Balancer, Moment, Passing

TOKEN = "the-token-of-the-faults"
#: How long the server waits for the catalog, and how long a slow catalog takes.
UPSTREAM_SECONDS, SLOW_SECONDS, SILENT_SECONDS = 4, 0.5, 6.0
_READY_SECONDS = 60.0
#: On a busy machine a server may be late more than once.
_ATTEMPTS = 4


# --- what is asked ---


@dataclass(frozen=True)
class Read:
    """What a client got. Field ids by the names that it knew: for filters, and for the columns of its rows.

    ``table_uuid``: of the table that it had loaded.
    """

    table_uuid: str
    rows: list[tuple[Any, ...]]
    filter_names: Mapping[str, int]
    row_names: Mapping[str, int]


class Reader(Protocol):
    """A client. Whatever it raises is an error that its user sees."""

    def __call__(self, address: str, name: str, condition: Condition, snapshot_id: int | None) -> Read:
        """Read the rows that pass."""


def read_by_pyiceberg(address: str, name: str, condition: Condition, snapshot_id: int | None) -> Read:
    """By PyIceberg, which names no snapshot when it reads the head."""
    catalog = load_catalog("served", **{"type": "rest", "uri": address, "token": TOKEN, "scan-planning-mode": "server"})
    table = catalog.load_table(("ns", name))
    chosen: dict[str, Any] = {"row_filter": condition.text} if condition.tests else {}
    scan = table.scan(snapshot_id=snapshot_id, **chosen)
    row_names = names_of(scan.projection())
    found = [tuple(row[column] for column in row_names) for row in scan.to_arrow().to_pylist()]
    return Read(str(table.metadata.table_uuid), found, names_of(table.schema()), row_names)


def expected(read: Read, rows: Sequence[Row], condition: Condition) -> list[tuple[Any, ...]]:
    """The rows of one state as the client of ``read`` should see them."""
    found = []
    for row in rows:
        named = {name: row.get(number) for name, number in read.filter_names.items()}
        if condition.passes(named):
            found.append(tuple(row.get(number) for number in read.row_names.values()))
    return found


# --- what goes wrong ---


@dataclass
class World:
    """A catalog, its replicas, and what is before the catalog and the storage that replicas ask.

    ``guard``: of a REST catalog. ``bucket``: where tables are in one. ``clock``: the file that sets replicas' clocks.
    ``place``: of the file that a location names.
    """

    lake: Lake
    balancer: Balancer
    reader: Reader
    guard: Guard | None = None
    clock: Path | None = None
    bucket: Proxy | None = None
    place: Callable[[str], Path] = local
    undo: list[Callable[[], None]] = field(default_factory=list)

    @property
    def faults(self) -> Sequence[Fault]:
        """What can go wrong here."""
        found = [
            *REPLICAS,
            *(UPSTREAM if self.guard else ()),
            *CHANGES,
            *INDEXES,
            *DAMAGES,
            *(BUCKET if self.bucket else ()),
        ]
        return [*found, *(CLOCKS if self.clock else ())]

    def settle(self) -> None:
        """End what still goes wrong, and wait until all replicas are ready."""
        while self.undo:
            self.undo.pop()()
        for replica in self.balancer.replicas:
            replica.wait()
        deadline = time.monotonic() + _READY_SECONDS
        for replica in self.balancer.replicas:
            while not _is_ready(replica.address):
                if time.monotonic() > deadline:
                    raise AssertionError("a replica is not ready long after the fault")
                threading.Event().wait(0.02)


def _is_ready(address: str) -> bool:
    try:
        return requests.get(f"{address}/readyz", timeout=5).ok
    except requests.RequestException:
        return False


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong. ``breaks``: the table can no longer be read when it is over; ``holds``: until then it
    cannot be changed.
    """

    name: str
    begin: Callable[[World, History, Passing], None]
    breaks: bool = False
    holds: bool = False


def _kill(world: World, _: History, passing: Passing) -> None:
    _one(world, passing).replace(signal.SIGKILL)


def _restart(world: World, _: History, passing: Passing) -> None:
    _one(world, passing).replace(signal.SIGTERM)


def _stop(seconds: float) -> Callable[[World, History, Passing], None]:
    def begin(world: World, _: History, passing: Passing) -> None:
        replica = _one(world, passing)
        replica.send(signal.SIGSTOP)
        timer = threading.Timer(seconds, replica.send, [signal.SIGCONT])
        timer.start()
        world.undo.append(timer.join)

    return begin


def _one(world: World, passing: Passing) -> Any:
    listening = [replica for replica in world.balancer.replicas if replica.server is not None]
    return passing.replica if passing.replica in listening else listening[0]


def _upstream(trouble: Callable[[], Trouble], chance_of_own: float = 0.5) -> Callable[[World, History, Passing], None]:
    """The next answers of the catalog are in trouble."""

    def begin(world: World, history: History, _: Passing) -> None:
        if world.guard is None:
            return
        left, is_all = [history.chance.randint(1, 3)], history.chance.random() < chance_of_own

        def choose(path: str) -> Trouble | None:
            if left[0] <= 0 or not (is_all or path.endswith(f"/tables/{history.name}")):
                return None
            left[0] -= 1
            return trouble()

        world.guard.trouble = choose
        world.undo.append(lambda: setattr(world.guard, "trouble", lambda path: None))

    return begin


@dataclass(frozen=True)
class _Put:
    place: Path
    content: bytes

    def __call__(self) -> None:
        self.place.write_bytes(self.content)


def _slow(seconds: float) -> Callable[[], Trouble]:
    def made() -> Trouble:
        event = threading.Event()
        threading.Timer(seconds, event.set).start()
        return Trouble(wait=event)

    return made


_JSON = {"content-type": "application/json"}
UPSTREAM: Sequence[Fault] = tuple(
    Fault(name, _upstream(trouble))
    for name, trouble in (
        ("catalog answers 500", lambda: Trouble(500, error("InternalServerError", 500), _JSON)),
        ("catalog answers 503", lambda: Trouble(503, b"busy", {"retry-after": "1"})),
        ("catalog answers 429", lambda: Trouble(429, b"slow down")),
        ("catalog answers 404", lambda: Trouble(404, error("NoSuchTableException", 404), _JSON)),
        ("catalog answers 403", lambda: Trouble(403, error("ForbiddenException", 403), _JSON)),
        ("catalog answers garbage", lambda: Trouble(200, b"<html>welcome</html>", {"content-type": "text/html"})),
        ("catalog answers nothing", lambda: Trouble(200, b"", _JSON)),
        ("catalog answers {}", lambda: Trouble(200, b"{}", _JSON)),
        ("catalog answers 304", lambda: Trouble(304)),
        ("catalog is slow", _slow(SLOW_SECONDS)),
        ("catalog is silent", _slow(SILENT_SECONDS)),
        ("catalog cuts answers", lambda: Trouble(is_cut=True)),
    )
)


def _storage(world: World, history: History, _: Passing) -> None:
    """Files that tell what the table holds cannot be read as they were written."""
    paths = history.manifests()
    for path in history.chance.sample(paths, min(len(paths), history.chance.choice([1, 1, 2, 9]))):
        place, content = history.place(path), history.place(path).read_bytes()
        spoil(place, history.chance)
        world.undo.append(_Put(place, content))


def _bucket(fault: storage.Fault | storage.Refusal | None) -> Callable[[World, History, Passing], None]:
    """The next requests for files other than data meet ``fault``; None: they wait."""

    def begin(world: World, history: History, _: Passing) -> None:
        bucket = world.bucket
        if bucket is None:
            return
        left = [history.chance.choice([1, 2, 5, 1000])]

        def choose(kind: str, path: str) -> storage.Fault | storage.Refusal | None:
            if f"/{history.name}/data/" in path or left[0] <= 0:
                return None
            left[0] -= 1
            if fault is None:
                bucket.hold(SLOW_SECONDS)
            return fault

        bucket.choose = choose
        world.undo.append(bucket.forget)

    return begin


def _clock(world: World, history: History, _: Passing) -> None:
    if world.clock is not None:
        clock = world.clock
        clock.write_text(history.chance.choice(["+3600", "-3600", "+90000", "-31536000", "+315360000", "+2"]))
        world.undo.append(_Put(clock, b"+0"))
        threading.Event().wait(1.1)  # the processes look once a second


def _change(change: Callable[[History], None]) -> Callable[[World, History, Passing], None]:
    return lambda _, history, __: change(history)


def _compact_and_expire(history: History) -> None:
    history.compact()
    history.expire()


REPLICAS: Sequence[Fault] = (
    Fault("replica killed", _kill),
    Fault("replica restarted", _restart),
    Fault("replica stopped for 0.3 s", _stop(0.3)),
    Fault("replica stopped for 14 s", _stop(14.0)),
)
CHANGES: Sequence[Fault] = (
    Fault("append", _change(History.append)),
    Fault("delete", _change(History.delete)),
    Fault("delete by position", _change(History.delete_positions)),
    Fault("compaction", _change(History.compact)),
    Fault("compaction and expiry", _change(_compact_and_expire)),
    Fault("expiry", _change(History.expire)),
    Fault("drop and create", _change(History.replace)),
    Fault("exchanged tables", _change(History.exchange)),
    Fault("drop", _change(History.drop), breaks=True),
    Fault("rename", _change(History.rename), breaks=True),
    Fault("rollback", _change(History.roll_back)),
    Fault("renamed column", _change(History.rename_column)),
    Fault("swapped columns", _change(History.swap_columns)),
    Fault("column added again", _change(History.add_again)),
    Fault("wider column", _change(History.widen)),
    Fault("other partitions", _change(History.partition)),
)
INDEXES: Sequence[Fault] = (
    Fault("indexes follow", _change(History.reindex)),
    Fault("indexes dropped", _change(History.drop_indexes)),
    Fault("indexes rebuilt", _change(History.rebuild_indexes)),
    Fault("indexes damaged", _change(History.damage_indexes)),
    Fault("indexes of another table", _change(History.lend_indexes)),
)
DAMAGES: Sequence[Fault] = (Fault("manifests damaged", _storage, holds=True),) * 3
CLOCKS: Sequence[Fault] = (Fault("clocks jump", _clock),)
BUCKET: Sequence[Fault] = (
    *(Fault(f"bucket: {fault.value}", _bucket(fault)) for fault in storage.Fault),
    *(Fault(f"bucket: {fault.value[1]}", _bucket(fault)) for fault in storage.Refusal),
    Fault("bucket is slow", _bucket(None)),
)


# --- one read ---


@dataclass(frozen=True)
class Draw:
    """One read. ``faults``: with the request at which each begins; ``at``: how many snapshots back, None: the head."""

    number: int
    condition: Condition
    at: int | None
    is_warm: bool
    faults: tuple[tuple[Fault, str, int, Moment], ...]

    def __str__(self) -> str:
        """For progress and messages."""
        told = "; ".join(f"{fault.name} {moment.value} {kind} {nth}" for fault, kind, nth, moment in self.faults)
        warm = "warm" if self.is_warm else "cold"
        return f"{self.number}: [{self.condition.text or 'all'}] at {self.at} {warm}; {told}"


_KINDS = ("load", "plan", "plan", "plan", "tasks", "tasks")


def draw(world: World, seed: int, number: int) -> Draw:
    """Every fault has its turn; the rest is by chance."""
    chance, faults = random.Random(seed * 1_000_003 + number), [*world.faults]
    random.Random(seed).shuffle(faults)
    chosen = [faults[number % len(faults)]]
    if chance.random() < 0.4 and (second := chance.choice(faults)) not in chosen:
        chosen.append(second)
    placed = tuple(
        (fault, kind := chance.choice(_KINDS), chance.randint(1, 2) if kind == "tasks" else 1, chance.choice([*Moment]))
        for fault in chosen
    )
    at = chance.choice([None, None, None, 0, 1, 2])
    return Draw(number, draw_condition(chance), at, chance.random() < 0.5, placed)


@dataclass
class _Acting:
    """Begins each fault at its request. What fails in a change is the test's failure, not the client's."""

    world: World
    history: History
    faults: list[tuple[Fault, str, int, Moment]]
    begun: list[Fault] = field(default_factory=list)
    failure: Exception | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, passing: Passing) -> None:
        """Act at a moment of a request."""
        with self.lock:
            due = [each for each in self.faults if each[1:] == (passing.kind, passing.number, passing.moment)]
            for each in due:
                self.faults.remove(each)
                self._begin(each[0], passing)

    def _begin(self, fault: Fault, passing: Passing) -> None:
        is_fixed = any(each.breaks or each.holds for each in self.begun)
        if is_fixed and fault not in (*REPLICAS, *UPSTREAM):
            return
        if passing.moment is Moment.DURING:
            threading.Event().wait(self.history.chance.choice([0, 0.002, 0.01, 0.03]))
        try:
            fault.begin(self.world, self.history, passing)
            self.begun.append(fault)
        except Exception as error:  # noqa: BLE001 - told by whoever waits for the read
            self.failure = error


@dataclass
class Outcome:
    """How a read ended: as a state that the table had, or with an error."""

    drawn: Draw
    result: str
    error: str = ""
    begun: tuple[str, ...] = ()
    pages: int = 0


class WrongRows(AssertionError):
    """A client got rows that the table never had while it was read."""


def run(world: World, seed: int, drawn: Draw) -> Outcome:
    """One read with its faults. Raises WrongRows; AssertionError when it is not right again afterwards."""
    world.settle()
    world.balancer.forget()
    history = History(world.lake, random.Random(seed * 7_000_003 + drawn.number), world.place)
    history.begin()
    snapshot_id = _snapshot_id(history, drawn)
    if drawn.is_warm:
        check(world, history, drawn, snapshot_id, len(history.states) - 1)
        world.balancer.forget()
    first = len(history.states) - 1
    acting = _Acting(world, history, list(drawn.faults))
    world.balancer.act = acting
    try:
        result, error = check(world, history, drawn, snapshot_id, first), ""
    except WrongRows:
        raise
    except Exception as failed:  # noqa: BLE001 - whatever a client raises is an error that its user sees
        result, error = "error", f"{type(failed).__name__}: {failed}"[:200]
    pages = world.balancer.counted.get("tasks", 0)
    world.balancer.forget()
    if acting.failure is not None:
        raise RuntimeError(f"{drawn}: the bed failed") from acting.failure
    world.settle()
    _require_right_again(world, history, drawn, acting)
    return Outcome(drawn, result, error, tuple(fault.name for fault in acting.begun), pages)


def _snapshot_id(history: History, drawn: Draw) -> int | None:
    known = list(history.snapshots)
    return None if drawn.at is None else known[max(0, len(known) - 1 - drawn.at)]


def check(world: World, history: History, drawn: Draw, snapshot_id: int | None, first: int) -> str:
    """Read, and tell which state the rows are of. Raises WrongRows, and whatever the reader raises.

    A client that names no snapshot asks for what has the name when the server looks: another table, perhaps.
    """
    read = world.reader(world.balancer.address, history.name, drawn.condition, snapshot_id)
    found = sorted(map(repr, read.rows))
    states = history.states[first:] if snapshot_id is None else [history.snapshots[snapshot_id]]
    equal = [state for state in states if found == sorted(map(repr, expected(read, state.rows, drawn.condition)))]
    if own := [state for state in equal if state.table_uuid == read.table_uuid]:
        return "as it was" if own[0] is states[0] else f"as after {own[0].what}"
    if equal and snapshot_id is None:
        return f"of the table that took the name by {equal[0].what}"
    told = [sorted(map(repr, expected(read, state.rows, drawn.condition))) for state in states]
    raise WrongRows(
        f"{drawn}\n{history.name} gave {len(found)} rows, states have {[len(rows) for rows in told]} "
        f"({[state.what for state in states]})\nfound {found[:5]}\nexpected {[rows[:5] for rows in told]}"
    )


def _require_right_again(world: World, history: History, drawn: Draw, acting: _Acting) -> None:
    """Each replica answers for the head as it is now, unless nothing can be read any more."""
    if any(fault.breaks for fault in acting.begun):
        return
    head = Draw(drawn.number, drawn.condition, None, drawn.is_warm, drawn.faults)
    for _ in world.balancer.replicas:
        for attempt in range(_ATTEMPTS):
            try:
                check(world, history, head, None, len(history.states) - 1)
                break
            except WrongRows:
                raise
            except Exception as failed:
                if _may_fail(history, drawn.condition):
                    break
                if attempt + 1 == _ATTEMPTS:
                    raise AssertionError(f"{drawn}: still an error when the fault is over: {failed}") from failed


def _may_fail(history: History, condition: Condition) -> bool:
    """Whether the filter names a column that the table does not have any more."""
    names = names_of(history.table().schema())
    return any(test.column not in names for test in condition.tests)
