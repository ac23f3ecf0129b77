"""What jobs of a table that have ended left among the records of runs: pinned sources, changes for executors.

Called by the step OrphanFiles. Jobs of all tables keep such records in one place; the pin of a job tells which Table it
writes. As with orphan files, a run deletes only what an earlier one wrote down and what did not change since. Must not
touch what belongs to a job that may still run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from skipstone_core.ids import OWN_DIRECTORY, RUNS_DIRECTORY
from skipstone_core.maintenance.orphans import MOST_RECORDED, FileMark, FoundFile, OrphanRecord
from skipstone_core.maintenance.policies import OrphanFilesAction, OrphanFilesPolicy

from skipstone.sources.listing import pin_path, pinned_table
from skipstone.storage.opening import open_storage
from skipstone.storage.port import Storage
from skipstone.tables.upkeep.orphans import OrphanRecords, OrphanSite, found_file, oldest_ms

#: Where it is written down what is about to be deleted.
LEFTOVERS_DIRECTORY = f"{OWN_DIRECTORY}/leftovers"
#: Pins that are read at the same time.
_READERS = 16


def clean_leftovers(site: OrphanSite, policy: OrphanFilesPolicy) -> int:
    """Delete the records of ended jobs that an earlier run wrote down, and write down the others; how many files went.

    Nothing is done unless ``policy`` says that what is orphaned is deleted. Raises DependencyUnavailable.
    """
    if policy.action is not OrphanFilesAction.DELETE:
        return 0
    storage, folder = open_storage(site.warehouse), f"{LEFTOVERS_DIRECTORY}/{site.ref.uid}"
    records = OrphanRecords(storage, folder)
    known = records.marks(but_of=site.spared.run_id)
    left: list[FileMark] = []
    deleted = 0
    for uid, marks in sorted(_of_ended_jobs(storage, site, oldest_ms(site, policy, storage, folder)).items()):
        if known.issuperset(marks):
            _delete(storage, uid, marks)
            deleted += len(marks)
        else:
            left += marks
    records.replace(OrphanRecord(run_id=site.spared.run_id, marks=tuple(left[:MOST_RECORDED])))
    return deleted


def _of_ended_jobs(storage: Storage, site: OrphanSite, oldest: int) -> Mapping[str, list[FileMark]]:
    """The records of each job of this table that has ended, by its uid, if all of them are old."""
    jobs = _jobs(found_file(entry) for entry in storage.list(RUNS_DIRECTORY))
    old = [
        uid
        for uid, files in jobs.items()
        if uid not in site.spared.owners and all(file.touched_ms < oldest for file in files)
    ]
    with ThreadPoolExecutor(_READERS) as pool:
        tables = list(pool.map(lambda uid: pinned_table(storage, uid), old))
    ours = [uid for uid, table in zip(old, tables, strict=True) if table == site.ref.uid]
    return {uid: [file.mark for file in jobs[uid]] for uid in ours}


def _jobs(files: Iterable[FoundFile]) -> dict[str, list[FoundFile]]:
    by_job: dict[str, list[FoundFile]] = {}
    for file in files:
        uid = file.mark.path.removeprefix(f"{RUNS_DIRECTORY}/").partition("/")[0]
        by_job.setdefault(uid, []).append(file)
    return by_job


def _delete(storage: Storage, uid: str, marks: Iterable[FileMark]) -> None:
    """The pin goes last: it tells whose the others are."""
    pin = pin_path(uid)
    for mark in marks:
        if mark.path != pin:
            storage.delete(mark.path)
    storage.delete_folder(f"{RUNS_DIRECTORY}/{uid}")
