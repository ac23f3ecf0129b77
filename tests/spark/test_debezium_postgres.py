"""What Debezium makes of a random history of PostgreSQL arrives in Iceberg, every value as it is in PostgreSQL.

Runs in `make soak-debezium` only: SKIPSTONE_SOAK_CASES transactions drawn by SKIPSTONE_SOAK_SEED. Each difference to
the database that is neither refused nor known fails; docs/guide/feeds.md has the list of what is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest
from skipstone.tasks.share import USUAL_SHARE
from skipstone_core.errors import BadData

from tests.spark.debezium import VERSION, engines
from tests.spark.debezium_exceptions import exceptions
from tests.spark.debezium_merges import Series, Told
from tests.spark.debezium_odd import STREAMED
from tests.spark.debezium_odd_rows import Outcome, is_known, outcomes
from tests.spark.debezium_settings import AVRO, PLAIN, SCHEMAS, SETTINGS, Setting
from tests.spark.merge_bed import ALL_IN_SPARK, MergeBed, task_of
from tests.spark.postgres import postgres
from tests.spark.postgres_history import MARKER, History, Seen
from tests.spark.postgres_tables import BY_KEY, BY_ROW, PARTS, SHAPES, Shape

SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "10000"))
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
#: Each ends with a mark, at which the tables are compared.
INTERVALS = 9
TRUNCATED_IN, KILLED_IN = 4, 7
#: The first mark before which there is a new snapshot of LATE.
LATE_FROM = 7
pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]


@dataclass(frozen=True)
class Played:
    """A history that is over. ``seen``: all tables at each mark; ``folder``: with a folder of files for each topic."""

    folder: Path
    seen: Mapping[int, Mapping[str, Seen]]
    told: Told
    odd: list[tuple[Setting, Outcome]] = field(default_factory=list)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Slots are made and snapshots taken while the history is going on; it has a truncate in its midst.

    Later the engines are killed, and others go on: they read again what those had not noted as read.
    """
    folder = tmp_path_factory.mktemp("debezium")
    began = time.monotonic()
    all_of = [setting.engine for setting in SETTINGS]
    seen: dict[int, Mapping[str, Seen]] = {}
    with (
        postgres("127.0.0.1", "wal_level=logical", "timezone=Europe/Berlin", "max_wal_senders=20",
                 "max_replication_slots=20") as server,
        contextlib.closing(History(server.port, Random(SOAK_SEED))) as history,
    ):  # fmt: skip
        with engines(folder, server.port, MARKER, all_of, INTERVALS) as running:
            while not running.started:
                history.run(1)
            seen[1] = history.mark()
            while not all(engine.has_reached(folder, 1) for engine in all_of):
                assert not running.ended, (folder / "engines.log").read_text()
                history.run(1)  # a table that is rewritten meanwhile is empty in a snapshot
            for number in range(1, KILLED_IN):
                seen[number + 1] = _interval(history, number)
                print(f"mark {number + 1} at {time.monotonic() - began:.0f} s: {dict(history.counts)}", flush=True)
            history.run(SOAK_CASES // INTERVALS // 2)
            running.kill()
        with engines(folder, server.port, MARKER, all_of, INTERVALS) as running:
            history.insert_odd(STREAMED)
            for number in range(KILLED_IN, INTERVALS):
                seen[number + 1] = _interval(history, number)
            print(f"written at {time.monotonic() - began:.0f} s: {dict(history.counts)}", flush=True)
            running.wait_done()
    print(f"\nDebezium {VERSION}, PostgreSQL {history.version}, seed {SOAK_SEED}, {time.monotonic() - began:.0f} s")
    told = Told()
    yield Played(folder, seen, told)
    print()
    for (event, way, sentence, setting), count in sorted(told.refusals.items()):
        print(f"{count:5} times, {setting}: {event}: {sentence} ({way})")
    for (what, setting), count in sorted(told.changes.items()):
        print(f"{count:5} values, {setting}: {what}")


def _interval(history: History, number: int) -> Mapping[str, Seen]:
    """Play the interval ``number`` up to its mark."""
    history.run(SOAK_CASES // INTERVALS // 2)
    history.alter()
    if number == TRUNCATED_IN:
        history.truncate()
    history.run(SOAK_CASES // INTERVALS // 2)
    return history.mark()


def _shapes(setting: Setting) -> Iterator[Shape]:
    """The tables of ``setting``, each partition one where it is."""
    for shape in SHAPES:
        if shape.name in setting.engine.tables:
            yield shape
        for part in shape.partitions:
            if part in setting.engine.tables:
                yield replace(shape, name=part)


@pytest.mark.parametrize(
    ("setting", "shape"),
    [pytest.param(one, shape, id=f"{one.name}-{shape.name}") for one in SETTINGS for shape in _shapes(one)],
)
def test_a_history_arrives_as_it_was(played: Played, tmp_path: Path, setting: Setting, shape: Shape) -> None:
    bed, began = MergeBed(tmp_path), time.monotonic()
    series = Series(bed, setting, shape, played.folder, played.told)
    for mark in range(1, INTERVALS + 1):
        in_spark = (setting, shape) in ((SCHEMAS, BY_ROW), (AVRO, BY_KEY)) and mark == 2
        bed.limits = ALL_IN_SPARK if in_spark else USUAL_SHARE
        if series.is_waiting:
            if mark < LATE_FROM or series.has_given_up:
                continue
            series.begin_anew()
        try:
            report = series.merge(mark)
        except BadData:
            # Changes that come again may lack values of rows that are deleted since: the next merge has the rest
            if mark != KILLED_IN + 1:
                raise
            continue
        if report is not None:
            series.compare(played.seen[mark][shape.name], f"mark {mark}")
    counts = dict(series.counts)
    print(f"{setting.name}, {shape.name}: {counts}, {time.monotonic() - began:.1f} s")
    bed.catalog.close()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_odd_values_are_right_or_refused_or_known(played: Played, tmp_path: Path, setting: Setting) -> None:
    bed, began = MergeBed(tmp_path), time.monotonic()
    unknown, counts = [], Counter[str]()
    for outcome in outcomes(bed, setting, played.folder):
        odd = outcome.odd
        kind = "refused" if outcome.sentence else "right" if outcome.is_right else "another"
        counts[kind] += 1
        if os.environ.get("SKIPSTONE_SOAK_TELL"):
            told = f"{outcome.way_out} {outcome.sentence}" if outcome.sentence else repr(outcome.stored)
            print(f"{setting.name}/{outcome.origin} {odd.sql} {odd.literal} as {odd.kind}: {kind} {told}")
        if kind == "another" and not is_known(outcome, setting):
            unknown.append((odd.sql, odd.literal, str(odd.kind), outcome.origin, outcome.stored))
        played.odd.append((setting, outcome))
    print(f"{setting.name}, odd values: {dict(counts)}, {time.monotonic() - began:.1f} s")
    bed.catalog.close()
    assert not unknown


def test_partitions_that_are_tables_are_not_merged_as_one(played: Played, tmp_path: Path) -> None:
    bed = MergeBed(tmp_path)
    shape = replace(PARTS, name=PARTS.partitions[0])
    series = Series(bed, PLAIN, shape, played.folder, played.told)
    folder = tmp_path / "feeds" / "history"
    for part in PARTS.partitions:
        for file in (played.folder / PLAIN.engine.topic(part)).glob("*.json"):
            (folder / f"{part}-{file.name}").hardlink_to(file)
    series.declare(replica_identity=PARTS.identity)
    task = task_of("", PARTS.keys, source=series.source, when_matched=(), when_not_matched=())
    with pytest.raises(BadData, match=r"publish\.via\.partition\.root"):
        bed.merge(task)
    bed.catalog.close()


def test_the_guide_has_the_list_of_exceptions(played: Played) -> None:
    """Runs last. It writes the list, unless a setting was not tried."""
    if {setting.name for setting, _ in played.odd} == {setting.name for setting in SETTINGS}:
        exceptions(played.told, played.odd).write()
