"""What ended jobs leave among the records of runs goes in two steps; what may still be needed stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from skipstone.runs.maintaining.leftovers import clean_leftovers
from skipstone.sources.listing import find_pin, pinned_source
from skipstone.tables.upkeep.orphans import OrphanSite, Spared
from skipstone_core.contract.requests import CatalogRef, CatalogType, SourceFormat, SourceSpec, TableRef, WarehouseRef
from skipstone_core.ids import RUNS_DIRECTORY
from skipstone_core.maintenance.policies import OrphanFilesAction, OrphanFilesPolicy

from tests.s3server import OWNER
from tests.storages import Home, credentials, s3_home, s3_ref, volume_home

DELETE = OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=3600)
DAY_MS = 86_400_000
SCRATCH = "mergejob-12345678-1-0abc1234/changes-0.parquet"


@dataclass
class Records:
    """A Warehouse with records of jobs of the Table `mine`, and runs of its maintenance, a day later."""

    home: Home
    warehouse: WarehouseRef
    runs: int = 0

    def job(self, uid: str, table: str = "mine") -> None:
        """A job that was killed while executors had its changes."""
        source = SourceSpec(format=SourceFormat.PARQUET, paths=("in/a.parquet",))
        pinned_source(self.warehouse, source, uid, table=table)
        self.home.put(f"{RUNS_DIRECTORY}/{uid}/{SCRATCH}")

    def clean(self, *live: str, policy: OrphanFilesPolicy = DELETE, later_ms: int = DAY_MS) -> int:
        """One run; ``live``: jobs of the table that have not ended."""
        self.runs += 1
        site = OrphanSite(
            catalog=InMemoryCatalog("unused"),
            warehouse=self.warehouse,
            ref=TableRef(namespace="ns", name="t", uid="mine"),
            spared=Spared(run_id=f"mine-12345678-{self.runs}", owners=live),
            now_ms=lambda: now_ms() + later_ms,
        )
        return clean_leftovers(site, policy)

    def jobs(self) -> list[str]:
        """Jobs with records, each as often as there are files of it."""
        return sorted(entry.path.split("/")[2] for entry in self.home.storage.list(RUNS_DIRECTORY))


def now_ms() -> int:
    """Of this machine's clock, which is that of both storages."""
    return time.time_ns() // 1_000_000


@pytest.fixture(params=["volume", "s3"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Records]:
    catalog = CatalogRef(type=CatalogType.SQL)
    if request.param == "volume":
        home, ref = (
            volume_home(tmp_path / "root"),
            WarehouseRef(name="wh", root=str(tmp_path / "root"), catalog=catalog),
        )
        home.put("in/a.parquet")
        yield Records(home, ref)
        return
    with credentials(OWNER):
        bucket = request.getfixturevalue("bucket")
        home = s3_home(bucket)
        home.put("in/a.parquet")
        yield Records(home, WarehouseRef(name="wh", root="", catalog=catalog, s3=s3_ref(bucket)))


def test_records_of_ended_jobs_go_in_the_second_run(records: Records) -> None:
    records.job("ended")
    records.job("live")
    records.job("others", table="theirs")
    records.job("untold", table="")
    assert records.clean("live") == 0
    assert records.jobs() == sorted(["ended", "live", "others", "untold"] * 2)
    assert records.clean("live") == 2
    assert records.jobs() == sorted(["live", "others", "untold"] * 2)
    if records.home.folder:
        assert not (records.home.folder / RUNS_DIRECTORY / "ended").exists()
    assert find_pin(records.warehouse, "live") is not None
    assert records.clean() == 0  # the job has ended since: it is written down first
    assert records.clean() == 2
    assert records.jobs() == sorted(["others", "untold"] * 2)
    assert list(records.home.storage.list(".skipstone/leftovers")) == []


@pytest.mark.parametrize(
    "between",
    [
        lambda records: records.home.put(f"{RUNS_DIRECTORY}/ended/{SCRATCH}", b"again"),
        lambda records: records.home.put(f"{RUNS_DIRECTORY}/ended/mergejob-12345678-2-0abc1234/0.parquet"),
    ],
    ids=["written again", "another attempt"],
)
def test_records_that_changed_are_written_down_again(records: Records, between: Callable[[Records], None]) -> None:
    records.job("ended")
    assert records.clean() == 0
    between(records)
    before = records.jobs()
    assert records.clean() == 0
    assert records.jobs() == before
    assert records.clean() == len(before)


def test_young_records_stay_and_a_report_deletes_nothing(records: Records) -> None:
    records.job("ended")
    report = OrphanFilesPolicy(action=OrphanFilesAction.REPORT, older_than_seconds=3600)
    for _ in range(2):
        assert records.clean(later_ms=60_000) == 0
        assert records.clean(policy=report) == 0
    assert records.jobs() == ["ended"] * 2


def test_records_stay_known_when_the_run_that_deletes_them_is_killed(records: Records) -> None:
    records.job("ended")
    assert records.clean() == 0
    records.home.remove(f"{RUNS_DIRECTORY}/ended/{SCRATCH}")  # the pin goes last
    assert records.clean() == 1
    assert records.jobs() == []
