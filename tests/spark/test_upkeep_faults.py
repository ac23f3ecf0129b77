"""Maintenance that is killed before or after any write, that gets no answer, or that is not allowed to delete.

No file that a retained snapshot reaches is ever gone, and the next run finishes what was begun. `make soak-maintain`
kills at every step of more tables.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import DataScan, Table
from skipstone.storage.volume import Volume
from skipstone.tables.catalogs import OwnSqlCatalog
from skipstone.tables.committing.commits import NoHooks
from skipstone.tables.states import table_state
from skipstone.tables.storage import DurableFileIO, plain_location
from skipstone.tables.upkeep.expiry import expire_snapshots
from skipstone.tables.upkeep.orphans import OrphanSite, Spared, clean_orphans
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import BadSpec
from skipstone_core.history.consumption import REGISTERED, consumed_property
from skipstone_core.maintenance.policies import (
    MaintenancePolicy,
    OrphanFilesAction,
    OrphanFilesPolicy,
    SnapshotPolicy,
)

from tests.examples import ALL_CASES, cases, turn
from tests.spark.lake import ref_of
from tests.spark.upkeep_bed import SCHEMA, Life, later

NEWEST = SnapshotPolicy(max_age_seconds=0)
#: What changes anything that outlives the process.
WRITES = (
    (OwnSqlCatalog, "commit_table"),
    (DurableFileIO, "delete"),
    (PyArrowFile, "create"),
    (Volume, "keep_content"),
    (Volume, "delete"),
)


#: How many more steps a history has, and the version of the format; in `make test` the commit decides which version.
LIVES = tuple(itertools.product(range(4), (2, 3))) if ALL_CASES else ((0, 2 + turn(2)),)


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Killer:
    """Ends all writes before the step ``fatal``: each write is two, before and after it took effect."""

    fatal: int
    steps: int = 0
    taken: list[str] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count from now on."""
        for owner, name in WRITES:
            monkeypatch.setattr(owner, name, self._stepped(getattr(owner, name), f"{owner.__name__}.{name}"))

    def _stepped(self, done: Callable[..., Any], name: str) -> Callable[..., Any]:
        def stepped(*args: Any, **kwargs: Any) -> Any:
            self.step(f"before {name}")
            result = done(*args, **kwargs)
            self.step(f"after {name}")
            return result

        return stepped

    def step(self, what: str) -> None:
        """One step; nothing is written after the fatal one."""
        self.steps += 1
        self.taken.append(what)
        if 0 < self.fatal <= self.steps:
            raise Killed(what)


@pytest.fixture
def life(request: pytest.FixtureRequest, warehouse: WarehouseRef, catalog: Catalog) -> Life:
    """A table with commits of all kinds, a tag, and files that were left behind and found by an earlier run."""
    life = Life(warehouse, catalog, partitioned=True, version=getattr(request, "param", 2))
    life.take([("job", 0), ("other", 0), ("mark", 0), ("tag", 1), ("delete", 1), ("rewrite", 0), ("job", 0)])
    life.take(
        [("rollback", 3), *[("job", 0), ("other", 0)] * 3, ("plant", 0), ("plant", 2), ("clean", 0), ("plant", 3)]
    )
    return life


def maintain(life: Life) -> None:
    """All of upkeep, as a run does it."""
    life.manifests()
    life.expire(0)
    life.clean()


def copied(life: Life, folder: Path) -> Iterator[None]:
    """The files of ``life`` as they are now, put back after each turn."""
    root = Path(life.warehouse.root)
    shutil.copytree(root, folder)
    while True:
        yield
        life.catalog.close()
        shutil.rmtree(root)
        shutil.copytree(folder, root)


@pytest.mark.parametrize(("history", "life"), LIVES, indirect=["life"])
def test_killed_anywhere_it_loses_nothing_and_the_next_run_finishes(
    history: int, life: Life, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(history)
    life.take(
        [(dice.choice(("job", "other", "mark", "branch", "plant", "tag")), dice.randrange(12)) for _ in range(history)]
    )
    turns = copied(life, tmp_path_factory.mktemp("kept") / "root")
    known = replace(life, rows=dict(life.rows), planted=set(life.planted), recorded=set(life.recorded))
    next(turns)
    fatal, last = 0, 1
    while fatal < last:
        turn = replace(known, rows=dict(known.rows), planted=set(known.planted), recorded=set(known.recorded))
        turn._ancestors.update(life._ancestors)
        with monkeypatch.context() as patched:
            killer = Killer(fatal)
            killer.watch(patched)
            if fatal:
                with pytest.raises(Killed):
                    maintain(turn)
            else:
                maintain(turn)
                last = killer.steps
                assert {step.split()[1] for step in killer.taken} == {
                    f"{owner.__name__}.{name}" for owner, name in WRITES
                }
        after_kill(turn)
        next(turns)
        fatal += 1 if not fatal else max(1, cases(last // 12, 1))


@dataclass
class Reader(Killer):
    """Reads snapshots that are kept before and after each write, by plans that were made before the first."""

    fatal: int = 0
    scans: dict[int, DataScan] = field(default_factory=dict)
    seen: list[tuple[int, list[int]]] = field(default_factory=list)
    reading: Lock = field(default_factory=Lock)

    def step(self, what: str) -> None:
        """One snapshot, each in its turn."""
        with self.reading:
            super().step(what)
            snapshot, scan = list(self.scans.items())[self.steps % len(self.scans)]
            self.seen.append((snapshot, sorted(scan.to_arrow()["id"].to_pylist())))


def test_readers_of_snapshots_that_stay_see_the_same_at_every_write(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = sorted(life.history, key=lambda one: life.table.snapshot_by_id(one).sequence_number)[-4:]  # type: ignore[union-attr]
    tagged = [ref.snapshot_id for ref in life.table.metadata.refs.values()]
    reader = Reader(scans={one: life.table.scan(snapshot_id=one) for one in {*newest, *tagged}})
    with monkeypatch.context() as patched:
        reader.watch(patched)
        expire_snapshots(life.catalog, ref_of(life.table), SnapshotPolicy(max_age_seconds=0, min_to_keep=4), later())
        life.clean()
    assert len({snapshot for snapshot, _ in reader.seen}) == len(reader.scans) > 4
    assert {step.split()[1] for step in reader.taken} >= {"OwnSqlCatalog.commit_table", "DurableFileIO.delete"}
    for snapshot, ids in reader.seen:
        assert ids == life.rows[snapshot]


def after_kill(life: Life) -> None:
    """Everything retained reads as before; two more runs leave what is reached and nothing else."""
    life.note()
    for snapshot in life.table.metadata.snapshots:
        assert life.read(snapshot.snapshot_id) == life.rows[snapshot.snapshot_id]
    life.planted = set()
    policy = OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60)
    expire_snapshots(life.catalog, ref_of(life.table), NEWEST, later())
    for run in ("00000000-12345678-7", "00000000-12345678-8"):
        clean_orphans(site(life, run), policy)
    life.check()
    assert not list(Path(life.warehouse.root, ".skipstone").rglob("expired/*/*"))


def site(life: Life, run: str = "00000000-12345678-1") -> OrphanSite:
    return OrphanSite(
        catalog=life.catalog,
        warehouse=life.warehouse,
        ref=ref_of(life.table),
        spared=Spared(run_id=run),
        now_ms=later().now_ms,
    )


@dataclass
class Unanswered(NoHooks):
    """The catalog's answer is lost once, before or after it did what it was asked."""

    before: bool
    times: int = 1

    def before_swap(self, table: Table) -> None:
        """Fail."""
        self._fail(self.before)

    def after_swap(self, table: Table) -> None:
        """Fail."""
        self._fail(not self.before)

    def _fail(self, now: bool) -> None:
        if now and self.times:
            self.times -= 1
            raise ConnectionError("no answer")


@pytest.mark.parametrize("before", [True, False])
def test_without_an_answer_the_table_tells_what_expired(before: bool, life: Life) -> None:
    ports = replace(later(), hooks=Unanswered(before))
    done = expire_snapshots(life.catalog, ref_of(life.table), NEWEST, ports)
    assert done.is_done
    assert done.snapshots > 3
    life.check()


@dataclass
class Beside(NoHooks):
    """Another engine does something each time before the catalog is asked."""

    does: list[Callable[[], None]]

    def before_swap(self, table: Table) -> None:
        """Let it."""
        if self.does:
            self.does.pop()()


def test_what_others_commit_or_name_meanwhile_stays(life: Life) -> None:
    oldest = life.table.metadata.snapshots[0].snapshot_id
    hooks = Beside([life.other, lambda: life.tag(0), lambda: life.rollback(2)])
    assert expire_snapshots(life.catalog, ref_of(life.table), NEWEST, replace(later(), hooks=hooks)).is_done
    assert oldest in {snapshot.snapshot_id for snapshot in life.table.metadata.snapshots}
    life.check()


def test_files_that_lie_elsewhere_stay(life: Life) -> None:
    foreign = Path(life.warehouse.root, "feeds", "registered.parquet")
    foreign.parent.mkdir()
    pq.write_table(life.batch().set_column(1, "part", [["a", "a"]]).cast(SCHEMA), foreign)
    life.table.add_files([f"file://{foreign}"])
    life.note()
    life.rewrite()
    life.expire(0)
    assert str(foreign) not in {plain_location(task.file.file_path) for task in life.table.scan().plan_files()}
    assert foreign.exists()


def test_registered_files_stay_when_their_folder_became_the_tables_own(life: Life) -> None:
    foreign = Path(life.warehouse.root, "feeds", "registered.parquet")
    foreign.parent.mkdir()
    pq.write_table(life.batch(), foreign)
    with life.table.transaction() as changed:
        changed.set_properties({consumed_property(REGISTERED): "1", "write.data.path": f"file://{foreign.parent}"})
    with life.table.update_spec() as update:
        update.remove_field("part")
    life.table.add_files([f"file://{foreign}"])
    life.rewrite()
    assert expire_snapshots(life.catalog, ref_of(life.table), NEWEST, later()).deleted.files
    assert foreign.exists()


@pytest.mark.parametrize("form", ["file:/{}", "{}"])
def test_a_file_that_was_added_again_by_another_form_of_its_path_stays(form: str, life: Life) -> None:
    life.other()
    files = [plain_location(task.file.file_path) for task in life.table.scan().plan_files()]
    life.table.delete(AlwaysTrue())
    life.note()
    life.table.add_files([form.format(path.lstrip("/") if "file:" in form else path) for path in files])
    life.note()
    life.expire(0)
    assert all(Path(path).exists() for path in files)


def test_a_file_that_was_added_again_by_a_link_stays(life: Life) -> None:
    paths = [Path(plain_location(task.file.file_path)) for task in life.table.scan().plan_files()]
    rows = sum(pq.read_metadata(path).num_rows for path in paths)
    for number, path in enumerate(paths):
        path.with_name(f"link{number}.parquet").symlink_to(path)
    life.table.delete(AlwaysTrue())
    life.note()
    life.table.add_files([f"file://{path.with_name(f'link{number}.parquet')}" for number, path in enumerate(paths)])
    life.note()
    expire_snapshots(life.catalog, ref_of(life.table), NEWEST, later())
    assert life.table.scan().count() == rows
    assert all(path.exists() for path in paths)


def refuse(life: Life, said: str) -> None:
    """Nothing may be deleted, and one sentence says why."""
    before = life.files()
    for call in (
        lambda: expire_snapshots(life.catalog, ref_of(life.table), NEWEST, later()),
        lambda: clean_orphans(site(life), OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60)),
    ):
        with pytest.raises(BadSpec, match=said):
            call()
    assert life.files() == before


def test_a_table_that_shares_its_files_keeps_them(life: Life) -> None:
    life.catalog.register_table(("ns", "clone"), life.table.metadata_location)
    refuse(life, r"ns\.clone has its metadata below")
    life.catalog.drop_table(("ns", "clone"))
    with life.table.transaction() as changed:
        changed.set_properties({"gc.enabled": "false"})
    refuse(life, "gc.enabled is 'false'")


def test_a_copy_keeps_its_files_when_its_metadata_went_elsewhere(life: Life) -> None:
    clone = life.catalog.register_table(("ns", "clone"), life.table.metadata_location)
    with clone.transaction() as changed:
        changed.set_properties({"write.metadata.path": f"file://{life.warehouse.root}/elsewhere"})
    clone.append(life.batch())
    assert "/elsewhere/" in clone.metadata_location
    life.rewrite()
    refuse(life, r"ns\.clone is a copy of it")


def test_orphans_are_not_looked_for_where_another_table_lies_through_a_link(life: Life) -> None:
    inner, link = Path(plain_location(life.table.location()), "inner"), Path(life.warehouse.root, "link")
    inner.mkdir()
    link.symlink_to(inner)
    life.catalog.create_table(("ns", "other"), SCHEMA, location=f"file://{link}")
    refuse(life, r"ns\.other has its metadata below")


@pytest.mark.parametrize("place", ["{location}/inner", "{above}"])
def test_orphans_are_not_looked_for_where_another_table_lies(place: str, life: Life) -> None:
    location = life.table.location()
    at = place.format(location=location, above=location.rpartition("/")[0])
    life.catalog.create_table(("ns", "other"), SCHEMA, location=at)
    policy = OrphanFilesPolicy(action=OrphanFilesAction.REPORT, older_than_seconds=60)
    with pytest.raises(BadSpec, match=r"overlaps|has its metadata below"):
        clean_orphans(site(life), policy)


@pytest.mark.parametrize("by_link", [False, True])
def test_an_orphan_that_another_table_took_over_stays(by_link: bool, life: Life) -> None:
    left = Path(plain_location(life.table.location()), "data", "left.parquet")
    pq.write_table(life.batch(), left)
    policy = OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60)
    clean_orphans(site(life, "00000000-12345678-1"), policy)
    other = life.catalog.create_table(("ns", "other"), SCHEMA)
    link = Path(life.warehouse.root, "link.parquet")
    link.symlink_to(left)
    other.add_files([f"file:{link if by_link else left}"])
    done = clean_orphans(site(life, "00000000-12345678-2"), policy)
    assert (done.deleted, left.exists()) == (1, True)  # the other one that the run before wrote down
    assert other.refresh().scan().count() == 2
    life.catalog.drop_table(("ns", "other"))
    assert clean_orphans(site(life, "00000000-12345678-3"), policy).deleted == 1


def test_a_report_deletes_nothing_and_names_the_first(life: Life) -> None:
    policy = OrphanFilesPolicy(action=OrphanFilesAction.REPORT, older_than_seconds=60)
    for run in ("00000000-12345678-1", "00000000-12345678-2"):
        found = clean_orphans(site(life, run), policy)
        assert (found.count, found.deleted) == (len(life.planted), 0)
        root = life.warehouse.root
        assert {f"{root}/{path}" for path in found.first} == life.planted
    life.check()


def test_metadata_that_is_listed_no_more_goes_with_the_snapshots(life: Life) -> None:
    with life.table.transaction() as changed:
        changed.set_properties({"write.metadata.previous-versions-max": "3"})
    life.take([("other", 0)] * 4)
    life.expire(0)
    kept = {path for path in life.files() - life.planted if path.endswith(".metadata.json")}
    assert len(kept) == 4


def test_the_state_of_a_table_tells_its_health(life: Life) -> None:
    policy = MaintenancePolicy(snapshots=SnapshotPolicy(max_age_seconds=1, min_to_keep=2))
    assert table_state(life.catalog, ref_of(life.table)).state.health is None
    state = table_state(life.catalog, replace(ref_of(life.table), maintenance=policy)).state
    assert state.health is not None
    table = life.table
    head = table.current_snapshot()
    assert head is not None
    manifests = head.manifests(table.io)
    assert state.health.snapshots == len(table.metadata.snapshots)
    assert state.health.manifests == len(manifests)
    paths = (table.metadata_location, head.manifest_list, *(one.manifest_path for one in manifests))
    assert state.health.metadata_bytes == sum(Path(plain_location(path)).stat().st_size for path in paths)
    assert state.health.small_files == state.files
    assert sum(state.health.bytes_by_age.values()) == state.bytes


def test_a_failure_to_judge_a_table_hides_no_state(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("skipstone.tables.states.table_health", fail)
    state = table_state(life.catalog, replace(ref_of(life.table), maintenance=MaintenancePolicy())).state
    assert (state.health, state.problem) == (None, None)
    assert state.rows == len(life.live())
