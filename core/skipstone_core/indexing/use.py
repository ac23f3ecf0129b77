"""Whether a query uses an index: the coded reasons against it, and the rule of cost.

Used by the data plane's lookup and planner; explain shows the codes. Must not know how anything is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from skipstone_core.coded import CodedSentence

#: Costs are told as bytes of a data file that tasks decode in the same time, on all cores.
#: What opening a file costs.
OPEN_BYTES = 256 * 1024
#: What it costs to decode a value of an index in the driver and to test it, besides its bytes: Python does the rest.
VALUE_BYTES = 2
#: What it costs to take a row that was found there: to know where each is, they are sorted.
ROW_BYTES = 64
#: What opening a file costs a task of Spark, as bytes that it could read in that time.
TASK_OPEN_BYTES = 256 * 1024
#: What opening a file to read a few of its rows costs the driver, likewise, and what a byte that it decodes there costs
#: it, as bytes that a task could read. Python does most of both, so cores do not help.
DRIVER_OPEN_BYTES = 192 * 1024
DRIVER_BYTE = 1.5
#: An index of which so little has to be read is always asked.
SMALL_FILES = 16
SMALL_BYTES = 1024 * 1024
#: An index may read this part of what it could save, not more.
WORTHWHILE_PART = 0.5
#: Tasks read this part of the rows from an index, not more: its rows stand in another order than those of the files.
SCAN_ROWS_PART = 0.25
#: Hits in more than this part of the data are no gain over a plain scan.
NARROW_PART = 0.9
#: Rows are read by position when they are at most this part of a file.
FEW_ROWS_PART = 0.01
#: A driver takes at most so many rows of a relation into a plan, unless the session says otherwise.
DRIVER_ROWS = 100_000
#: Rows in a page of a data file, as writers make them; what is decoded for one row.
PAGE_ROWS = 20_000
#: For so many seconds a session remembers which indexes a table has, unless it says otherwise.
REMEMBERED_SECONDS = 10
#: A side of a join gives at most so many rows when it runs first, unless the session says otherwise.
JOIN_ROWS = 100_000
#: What it costs to fetch a key of a side that ran and to look it up; so many keys are always looked up.
KEY_BYTES = 3000
FEW_KEYS = 2000
#: One side of a join runs first when reading it costs at most this part of reading the other one.
SMALL_SIDE_PART = 0.125
#: It costs at most this part when a look at some of its rows says that it gives no more than ``FEW_KEYS`` of them.
FEW_ROWS_SIDE_PART = 0.5
#: The other side of a join costs so much at least where the first one takes a job.
WORTH_A_JOB_BYTES = 128 * 1024 * 1024
#: What starting a distributed read costs, as bytes that the driver could read in that time.
JOB_BYTES = 32 * 1024 * 1024
#: Bytes in memory of rows that the driver reads of a relation by their positions, or of an index.
DRIVER_BYTES = 256 * 1024 * 1024
#: Bytes, as they are in memory, that the driver decodes at most of files of which no index tells anything: where tasks
#: have many cores, and where they have no more than the driver.
DECODED_BYTES = 256 * 1024 * 1024
MOST_DECODED_BYTES = 1024 * 1024 * 1024
#: What it costs to shuffle a row and to sort it in, as rows that could be read in that time.
SHUFFLE_ROWS = 2.0
#: A covering index is used when reading through it costs at most this part of what Spark would do.
COVERING_PART = 0.9
#: An index that leaves this part of the files surely saves more than a filter at run time: what a filter leaves nobody
#: knows before it runs, and Spark itself assumes that it is half.
RUNTIME_FILTER_PART = 0.1


#: Keys that are looked up first where many are: from their hits follows where those of all will be.
SAMPLE_KEYS = 4
#: Row groups of an index that are read first where many may hold hits, as those of a wide range.
SAMPLE_GROUPS = 4
MANY_GROUPS = 3 * SAMPLE_GROUPS
#: Entries of an index that are looked at first for a reader of whole files, and how many times more each time after:
#: some hits in nearly every file say that all of them are no gain.
FIRST_LOOK = 4 * 1024
LOOK_GROWTH = 8
#: Keys from which on a sample of them is looked up first.
MANY_KEYS = 16 * SAMPLE_KEYS
#: So many pages that two samples meet tell how many there are, give or take a sixth.
TELLING_PAGES = 32
#: Hits in more than this part of the pages, as a sample tells, save less than reading all of them from the index costs.
SAMPLED_PART = 0.75


class NotUsed(CodedSentence):
    """Why an index, or every index, was not used for a read."""

    # One index
    LEADING_COLUMN_NOT_BOUND = "LeadingColumnNotBound", "The condition does not narrow the first column of the index."
    NOT_COVERED = "NotCovered", "The index covers no file that may hold a matching row."
    NO_GAIN = "NoGain", "Reading the index and its hits would cost about as much as reading without it."
    COLUMN_REPLACED = "ColumnReplaced", "An indexed column was dropped and its name given to a new column."
    DEFINITION_MISMATCH = "DefinitionMismatch", "The index was made for another table, column or layout."
    TOO_LITTLE_COVERED = "TooLittleCovered", "The index covers fewer rows than spec.unusedBelowPercent requires."
    HINTED = "Hinted", "A hint of the query names other indexes of the table."
    UNREADABLE = "Unreadable", "The index table or one of its files cannot be read; its segments count as missing."

    # Bloom filters
    NO_FILTERS = "NoFilters", "The files that may match have no bloom filters of the columns that the condition names."

    # All indexes of a read
    DISABLED = "Disabled", "The reader turned indexes off."
    NO_CONDITION = "NoCondition", "No part of the condition narrows a column in a way that an index supports."
    CATALOG_UNAVAILABLE = "CatalogUnavailable", "The catalog did not list the index tables."


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Files to open and bytes to read. Of an index also ``values`` that the driver decodes and tests, and ``rows`` that
    it finds, as far as their number is known before.
    """

    files: int = 0
    bytes: int = 0
    values: int = 0
    rows: int = 0

    @property
    def weight(self) -> int:
        """All as bytes."""
        return self.in_tasks + self.values * VALUE_BYTES + self.rows * ROW_BYTES

    @property
    def in_tasks(self) -> int:
        """As bytes, where tasks read it."""
        return self.bytes + self.files * OPEN_BYTES

    def __add__(self, other: ReadCost) -> ReadCost:
        """The cost of both."""
        return ReadCost(
            self.files + other.files,
            self.bytes + other.bytes,
            self.values + other.values,
            self.rows + other.rows,
        )

    def __str__(self) -> str:
        """For explain."""
        return f"{self.bytes:,} bytes in {self.files} {'file' if self.files == 1 else 'files'}"


@dataclass(frozen=True, slots=True)
class CostLimits:
    """The limits that decide what pays off; None: the usual one, which is a constant of this module.

    ``worthwhile``: the part of the savings that reading an index may cost. ``narrow``: of the data, that its hits may
    be in. ``scan_rows``: of the rows of the files with hits, that tasks read from an index. ``small_side``: of the
    cost of a relation, that the other side of its join, or the keys of that, may cost. ``join_bytes``: what the
    relation costs at least then. ``covering``: of the cost of Spark's join, that one by buckets may cost.
    ``runtime_filter``: of the files, that an index may leave where Spark filters partitions. ``driver_bytes``: bytes
    in memory that the driver takes of a relation.
    """

    worthwhile: float | None = None
    narrow: float | None = None
    scan_rows: float | None = None
    small_side: float | None = None
    join_bytes: int | None = None
    covering: float | None = None
    runtime_filter: float | None = None
    driver_bytes: int | None = None

    @property
    def is_forced(self) -> bool:
        """Return whether an index is read whatever it costs."""
        return self.worthwhile == math.inf

    def forced(self) -> CostLimits:
        """The limits by which an index is read whatever it costs, and its hits are used wherever they are."""
        return replace(self, worthwhile=math.inf, narrow=math.inf)


USUAL_LIMITS = CostLimits()


def is_worthwhile(index: ReadCost, candidates: ReadCost, limits: CostLimits = USUAL_LIMITS) -> bool:
    """Return whether to read ``index``, which can save at most the reading of ``candidates``."""
    if candidates.files == 0:
        return False
    part = _or_usual(limits.worthwhile, WORTHWHILE_PART)
    if part > 0 and index.files <= SMALL_FILES and index.bytes <= SMALL_BYTES:
        return True
    return index.weight <= part * candidates.weight


def _or_usual(part: float | None, usual: float) -> float:
    return usual if part is None else part


@dataclass(frozen=True, slots=True)
class ScanCost:
    """What tasks read: files and bytes, and the rows among which they look."""

    read: ReadCost
    rows: int


def is_scan_cheaper(index: ScanCost, files: ScanCost, limits: CostLimits = USUAL_LIMITS) -> bool:
    """Return whether tasks read their rows from an index, at the cost ``index``, and not from ``files``.

    Rows of neighboring keys stand together in files more often than not, which makes joins and groups of them cheap.
    """
    is_short = index.rows <= _or_usual(limits.scan_rows, SCAN_ROWS_PART) * files.rows
    return is_short and index.read.in_tasks <= _or_usual(limits.worthwhile, WORTHWHILE_PART) * files.read.in_tasks


def is_small_side(
    side: ReadCost, other: ReadCost, limits: CostLimits = USUAL_LIMITS, *, gives_few: bool = False
) -> bool:
    """Return whether to run ``side`` of a join first, although its keys may leave out nothing of the other side.

    ``gives_few``: whether it has few rows for certain, or nearly so. What has to be read takes a job of its own.
    """
    part = _or_usual(limits.small_side, SMALL_SIDE_PART)
    if side.files and other.weight < _or_usual(limits.join_bytes, WORTH_A_JOB_BYTES):
        return False
    return side.weight <= (max(part, FEW_ROWS_SIDE_PART) if gives_few else part) * other.weight


def are_worth_their_keys(keys: int, savings: ReadCost, limits: CostLimits = USUAL_LIMITS) -> bool:
    """Return whether to look up so many ``keys`` of a side that ran, which can save at most ``savings``."""
    return keys <= FEW_KEYS or keys * KEY_BYTES <= _or_usual(limits.small_side, SMALL_SIDE_PART) * savings.weight


def is_bucketed_faster(all_rows: int, entries: int, shuffled: int, limits: CostLimits = USUAL_LIMITS) -> bool:
    """Return whether a join by buckets is faster than reading and shuffling ``all_rows``.

    It reads ``entries``, and reads and shuffles ``shuffled`` rows.
    """
    read_and_shuffled = 1 + SHUFFLE_ROWS
    part = _or_usual(limits.covering, COVERING_PART)
    return entries + shuffled * read_and_shuffled <= part * all_rows * read_and_shuffled


def leaves_few(left: int, files: int, limits: CostLimits = USUAL_LIMITS) -> bool:
    """Return whether an index that leaves ``left`` of ``files`` to tasks surely saves more than a runtime filter."""
    return left <= _or_usual(limits.runtime_filter, RUNTIME_FILTER_PART) * files


def covers_too_little(covered: int, live: int, percent: int) -> bool:
    """Return whether ``covered`` of ``live`` rows are less than ``percent`` percent of them."""
    return 100 * covered < percent * live


def is_narrow(hit_bytes: float, candidate_bytes: float, limits: CostLimits = USUAL_LIMITS) -> bool:
    """Return whether hits in ``hit_bytes`` of the data save anything over reading all ``candidate_bytes``."""
    if limits.narrow == math.inf:
        return True
    return hit_bytes <= narrow_part(limits) * candidate_bytes


def narrow_part(limits: CostLimits) -> float:
    """The part of the data that hits may be in."""
    return _or_usual(limits.narrow, NARROW_PART)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Pages of all ``pages`` that two samples hit, and ``both`` of them."""

    first: int
    second: int
    both: int
    pages: int

    def expected_part(self, times: float) -> float:
        """The part of the pages that is hit by ``times`` as many keys as both samples have together.

        How many pages can be hit at all follows from how many both samples meet, if these are not too few to tell (the
        estimate of Lincoln and Petersen for the size of a population).
        """
        union, reachable = self.first + self.second - self.both, float(self.pages)
        if self.both >= TELLING_PAGES:
            reachable = min(reachable, self.first * self.second / self.both)
        if not union:
            return 0.0
        return reachable / self.pages * float(1 - (1 - min(1.0, union / reachable)) ** times)


def is_worth_a_job(cost: ReadCost) -> bool:
    """Return whether reading costs so much that tasks do it sooner than the driver, whatever single rows are wanted."""
    return cost.weight >= WORTH_A_JOB_BYTES


def are_few(rows: int, of_rows: int) -> bool:
    """Return whether so few rows are wanted that they are read by position."""
    return rows <= FEW_ROWS_PART * of_rows


def is_driver_faster(here: ReadCost, there: ReadCost, *, task_cores: int) -> bool:
    """Return whether the driver reads single rows, at cost ``here``, sooner than tasks read whole files, ``there``."""
    by_driver = here.files * DRIVER_OPEN_BYTES + here.bytes * DRIVER_BYTE
    by_tasks = there.files * TASK_OPEN_BYTES + there.bytes
    return by_driver <= by_tasks / task_cores + JOB_BYTES


def may_decode(nbytes: int, *, driver_cores: int, task_cores: int, most: int | None = None) -> int:
    """How many bytes the driver decodes before it leaves files to tasks, which have ``nbytes`` of them to decode: what
    its cores do while tasks do that. ``most``: what a session allows.
    """
    meanwhile = nbytes * driver_cores // max(1, task_cores)
    usual = min(DECODED_BYTES + meanwhile, MOST_DECODED_BYTES)
    return usual if most is None else min(usual, most)


def part_in_pages(rows: int, of_rows: int, page_rows: int) -> float:
    """The part of a file of ``of_rows`` that is in the pages of ``rows`` which lie anywhere in it."""
    pages = max(1, -(-of_rows // page_rows))
    return float(1 - (1 - 1 / pages) ** rows)
