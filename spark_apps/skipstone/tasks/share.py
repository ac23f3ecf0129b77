"""Which part of a run its driver does by itself: what it does sooner than a JVM starts and its tasks begin.

The one place that decides it: loads, merges and reindexes ask. Pure. Must not know what the work is. ``peek`` looks at
the same setting before anything is imported.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone_core.contract.requests import JobRequest
from skipstone_core.contract.spark import SmallWork, SparkRef


@dataclass(frozen=True, kw_only=True)
class DriverShare:
    """Work beyond any of these is done in Spark; all zero: all work is.

    ``rows``: source rows; ``source_bytes``: of plain source files, unpacked, and of what is held of them at once;
    ``decoded_bytes``: of their values, each as often as it is repeated, which pass through the driver in pieces;
    ``candidate_bytes``: of the data files that a merge may have to rewrite; ``searched_rows``: source rows of a merge
    whose keys are looked for in bounds and indexes; ``indexed_rows``: rows that a build or merge of index entries goes
    through.
    """

    rows: int = 1_000_000
    source_bytes: int = 128 * 1024 * 1024
    decoded_bytes: int = 2 * 1024 * 1024 * 1024
    candidate_bytes: int = 128 * 1024 * 1024
    searched_rows: int = 4_000_000
    indexed_rows: int = 1_000_000

    def searches(self, rows: int) -> bool:
        """Return whether the driver looks for the keys of so many source rows."""
        return rows <= self.searched_rows

    def rewrites(self, rows: int, held: int, size: int) -> bool:
        """Return whether the driver merges so many source rows, ``held`` bytes in memory, into files of ``size`` bytes.

        Rows that were too large to be read here were read in Spark, whose processes keep their memory meanwhile.
        """
        return rows <= self.rows and held <= self.source_bytes and size <= self.candidate_bytes

    def indexes(self, rows: int) -> bool:
        """Return whether the driver builds or merges so many index entries."""
        return rows <= self.indexed_rows

    def merges(self, rows: int) -> bool:
        """Return whether a run that committed merges so many entries of an index before it ends."""
        return rows <= max(self.rows, INLINE_MERGE_ROWS)


#: Entries that a run which committed merges at most, wherever it does so; a reindex merges more.
INLINE_MERGE_ROWS = 1_000_000
#: Files that a driver rewrites at a time where each of them mostly waits for an object store.
WAITING_WORKERS = 8
#: What these may hold in memory together: as much as every driver has besides the heap of its JVM.
WAITING_BYTES = 384 * 1024 * 1024

USUAL_SHARE = DriverShare()
NO_SHARE = DriverShare(rows=0, source_bytes=0, decoded_bytes=0, candidate_bytes=0, searched_rows=0, indexed_rows=0)


def driver_share(spark: SparkRef, usual: DriverShare = USUAL_SHARE) -> DriverShare:
    """Return the share of the driver of a run with these settings; ``usual`` unless all work is sent to Spark."""
    return NO_SHARE if spark.small_work is SmallWork.SPARK else usual


def merges_here(request: JobRequest, share: DriverShare, *, rows: int, held: int, size: int) -> bool:
    """Whether the driver applies so many source rows, of ``held`` bytes in memory, to data files of ``size`` bytes.

    A run without executors does so whatever the size of the files, with a thread for each of its cores, as in
    ``compacts_here``: a JVM and its Python workers take several seconds of a core, and each file as much memory there.
    """
    if request.spark.instances == 0 and share.candidate_bytes:
        size = 0
    return share.rewrites(rows, held, size)


def compacts_here(request: JobRequest, share: DriverShare, size: int) -> bool:
    """Return whether the driver rewrites data files of ``size`` bytes by itself, with a thread for each of its cores.

    A run without executors does all of it: its tasks would run in the same pod, and Spark adds nothing to them.
    """
    if request.spark.small_work is SmallWork.SPARK or not share.candidate_bytes:
        return False
    return request.spark.instances == 0 or size <= share.candidate_bytes


def enters_here(request: JobRequest, share: DriverShare, rows: int) -> bool:
    """Return whether the driver enters ``rows`` that it just committed into an index, with a thread for each core.

    A run without executors does so whatever their number, as in ``compacts_here``: it may have no JVM.
    """
    if request.spark.small_work is SmallWork.SPARK or not share.rows:
        return False
    return request.spark.instances == 0 or rows <= share.rows


def rewriting_workers(request: JobRequest, *, on_read: bool, held: int) -> int:
    """How many threads of a driver rewrite files of its table, one file each at a time.

    As many as it has cores, and more in a bucket. ``held``: bytes in memory of the file that takes most; large files
    keep a core busy, and fit no more often than there is memory. Merges on read put updated rows of all files of a
    thread into one new file, so more threads would make more files.
    """
    cores = request.spark.driver_cores
    if on_read or request.warehouse.bucket is None:
        return cores
    return max(cores, min(WAITING_WORKERS, WAITING_BYTES // max(held, 1)))
