"""Answers ``/plan`` and ``/tasks``: a table as its caller loads it, a plan of its files, pages of tasks.

Must not choose files: ``query.scans`` does. What it gives is counted before it is told: files that are left and files
that a proof ruled out are all live files, or there is no answer. An answer is remembered as long as the table and its
indexes are the same: who may load the table gets it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from skipstone_core.contract.planning import PlanningSettings
from skipstone_core.errors import BadData, BadSpec

from skipstone.caches import ByteCache
from skipstone.indexes.found import HeadNames, IndexHeads, NotedHeads
from skipstone.query.readplan import ReadOptions
from skipstone.query.residuals import reads_null
from skipstone.query.scans import PlannedScan, ScanRequest, plan_scan
from skipstone.serving.answers import BAD_REQUEST, NO_SNAPSHOT, NO_TASK, UNSUPPORTED, Refused, bad_request
from skipstone.serving.measures import PlanningMeasures
from skipstone.serving.pages import PageSeal, TaskPage, digest_of
from skipstone.serving.questions import read_plan_task, read_scan_request
from skipstone.serving.verifying import PlanVerifier
from skipstone.serving.workers import FirstAlone
from skipstone.tables.describing.tasks import describe_tasks_without_dropped, describe_tasks_without_null
from skipstone.tables.filesets import FileSet, known_file_set

#: About how many bytes an answer has at most; a page holds fewer files when each takes more.
_PAGE_BYTES: Final = 32 * 1024 * 1024
#: How long the catalog is not asked again which indexes a table has.
_HEADS_SECONDS: Final = 1.0
#: Bytes of a file in an answer, and of each column's bounds.
_FILE_BYTES, _BOUNDS_BYTES = 400, 80
#: Bytes of a residual, which is told with every file and is in every token.
_RESIDUAL_BYTES: Final = 256 * 1024
_RENUMBERED: Final = "the files of the plan-task are numbered in another way now: plan the scan again"


#: Memory for answers, and for one of them: who asks for more waits for the storage anyway.
ANSWER_CACHE_BYTES: Final = 32 * 1024 * 1024
_ANSWER_BYTES: Final = 1024 * 1024
_ANSWER_BASE: Final = 2048


@dataclass(frozen=True)
class PlanAnswer:
    """The body of an answer in parts; ``total``, ``left``: live files of the snapshot, and those to read."""

    parts: Sequence[bytes | memoryview]
    total: int
    left: int


@dataclass(frozen=True)
class _KnownAnswer:
    """An answer, what each index did for it, and the indexes that it was made by; None: they may not be the same."""

    answer: PlanAnswer
    uses: tuple[str, ...]
    heads: HeadNames | None

    @property
    def nbytes(self) -> int:
        """Memory in bytes; more than there is when it is not kept."""
        size = _ANSWER_BASE + sum(len(part) for part in self.answer.parts)
        return size if self.heads is not None and size <= _ANSWER_BYTES else ANSWER_CACHE_BYTES + 1


class _Question(NamedTuple):
    """What an answer depends on besides indexes. ``planner``: by its settings and its seal; ``body``: a digest."""

    planner: int
    table: Identifier
    uuid: str
    metadata_location: str
    body: bytes
    client: str


_answers: ByteCache[_Question, _KnownAnswer] = ByteCache("plan answers", ANSWER_CACHE_BYTES, lambda known: known.nbytes)
_planners = count()


@dataclass(frozen=True)
class _Described:
    """The common parts of all pages of a plan."""

    residual: Any
    bounds: tuple[int, ...]
    tells_null: bool


class ScanPlanner:
    """Plans within one Warehouse; its methods run in threads."""

    def __init__(
        self,
        settings: PlanningSettings,
        seal: PageSeal,
        measures: PlanningMeasures,
        verifier: PlanVerifier | None = None,
    ) -> None:
        self._settings, self._seal, self._measures, self._verifier = settings, seal, measures, verifier
        self._heads = IndexHeads(_HEADS_SECONDS)
        self._options = ReadOptions(index_namespace=settings.warehouse.index_namespace, heads=self._heads)
        self._first = FirstAlone()
        self._number = next(_planners)

    def plan(self, table: Table, body: bytes, client: str = "") -> PlanAnswer:
        """The answer to a request for a plan of ``table``. ``client``: how the caller's program calls itself.

        Raises Refused: 400 for a filter that cannot be read, 404 for a snapshot that is gone; RuntimeError when files
        are missing from the plan; and what reading manifests raises.
        """
        if self._verifier is None:
            known = _answers.get(
                self._question(table, body, client),
                lambda: self._made(table, body, client),
                lambda answer: not answer.heads or answer.heads == self._heads_of(table),
            )
        else:  # which looks into some of all answers
            known = self._made(table, body, client)
        self._measures.files_planned(known.answer.total, known.answer.left)
        for did in known.uses:
            self._measures.index_used(did)
        return known.answer

    def _question(self, table: Table, body: bytes, client: str) -> _Question:
        digest = hashlib.blake2b(body, digest_size=32).digest()
        uuid = str(table.metadata.table_uuid)
        return _Question(self._number, table.name(), uuid, table.metadata_location, digest, client)

    def _heads_of(self, table: Table) -> HeadNames | None:
        """The indexes of ``table`` as they are now; None when they cannot be loaded."""
        noted = NotedHeads(self._heads)
        with suppress(Exception):  # the plan says what is wrong
            noted.load(table.catalog, table.name(), self._options.index_namespace)
        return noted.used

    def _made(self, table: Table, body: bytes, client: str) -> _KnownAnswer:
        request, heads = read_scan_request(body, client), NotedHeads(self._heads)
        with self._measures.part("plan"):
            plan = self._planned(table, request, heads)
        with self._measures.part("describe"):
            parts = self._first_page(table, plan, _described(plan, client))
        if self._verifier is not None:
            self._verifier.offer(table, plan)
        answer = PlanAnswer(parts, len(plan.files), len(plan.ordinals))
        is_whole = not any(use.is_broken for use in plan.indexes)
        uses = ("broken" if use.is_broken else "used" if use.used else "unused" for use in plan.indexes)
        return _KnownAnswer(answer, tuple(uses), heads.used if is_whole else None)

    def tasks(self, table: Table, body: bytes, client: str = "") -> PlanAnswer:
        """The page that a token stands for.

        Raises Refused: 400 for a token that is damaged or of another table, 404 for one of a snapshot that is gone.
        """
        page = self._seal.page(read_plan_task(body))
        if page.table_uuid != str(table.metadata.table_uuid):
            raise bad_request("the plan-task is of another table: plan the scan of this table")
        with self._first.entered(table.metadata_location):
            files = _files_of(table, page.snapshot_id)
        if (len(page.ordinals) and page.ordinals[-1] >= len(files)) or digest_of(files, page.ordinals) != page.digest:
            raise Refused(404, NO_TASK, _RENUMBERED)
        with self._measures.part("describe"):
            shared = _Described(page.residual, page.bounds, reads_null(client))
            tasks = _task_texts(table, files, page.ordinals, shared)
        return PlanAnswer([b"{", *tasks, b"}"], len(files), len(page.ordinals))

    def _planned(self, table: Table, request: ScanRequest, heads: IndexHeads) -> PlannedScan:
        try:
            with self._first.entered(table.metadata_location):
                plan = plan_scan(table, request, replace(self._options_for(table), heads=heads))
        except KeyError:
            message = f"the table has no snapshot {request.snapshot_id} any more: load the table again"
            raise Refused(404, NO_SNAPSHOT, message, outcome="absent") from None
        except BadSpec as error:
            raise bad_request(str(error).rstrip(".")) from None
        counted = len(plan.ordinals) + sum(plan.left_out.values())
        if counted != len(plan.files):
            raise RuntimeError(f"a plan tells of {counted} files, and {len(plan.files)} are live")
        return plan

    def _options_for(self, table: Table) -> ReadOptions:
        """Without indexes for a table of which one was found to be wrong."""
        is_trusted = self._verifier is None or self._verifier.trusts(table)
        return self._options if is_trusted else replace(self._options, use_indexes=False)

    def _first_page(self, table: Table, plan: PlannedScan, shared: _Described) -> list[bytes | memoryview]:
        pages = list(self._pages(plan.ordinals, shared))
        tokens = [self._token(plan, ordinals, shared) for ordinals in pages[1:]]
        tasks = _task_texts(table, plan.files, pages[0], shared)
        ending = f',"plan-tasks":{json.dumps(tokens)}}}' if tokens else "}"
        return [b'{"status":"completed",', *tasks, ending.encode()]

    def _pages(self, ordinals: npt.NDArray[np.int64], shared: _Described) -> Iterator[npt.NDArray[np.int64]]:
        """The ordinals of each page; one page at least."""
        each = _FILE_BYTES + len(json.dumps(shared.residual)) + _BOUNDS_BYTES * len(shared.bounds)
        size = max(1, min(self._settings.files_per_page, _PAGE_BYTES // each))
        for start in range(0, max(1, len(ordinals)), size):
            yield ordinals[start : start + size]

    def _token(self, plan: PlannedScan, ordinals: npt.NDArray[np.int64], shared: _Described) -> str:
        page = TaskPage(
            plan.files.table_uuid,
            plan.files.snapshot_id,
            shared.residual,
            shared.bounds,
            ordinals,
            digest_of(plan.files, ordinals),
        )
        return self._seal.token(page)


def _files_of(table: Table, snapshot_id: int | None) -> FileSet:
    """The files of a snapshot, remembered as the plan of it left them. Raises Refused (404) when it has expired."""
    head = table.current_snapshot()
    is_head = snapshot_id == (head and head.snapshot_id)
    try:
        return known_file_set(table, None if is_head else snapshot_id)
    except KeyError:
        message = f"the snapshot {snapshot_id} of the plan-task has expired: plan the scan again"
        raise Refused(404, NO_TASK, message, outcome="absent") from None


def _described(plan: PlannedScan, client: str) -> _Described:
    """Return the common parts of all pages. Raises Refused (413) for a residual too large to repeat with each file."""
    size = len(json.dumps(plan.residual))
    if size > _RESIDUAL_BYTES:
        message = (
            f"this client needs the filter, of {size:,} bytes, with every file: shorten its lists of values, "
            "or let the client plan this read (scan-planning-mode client)"
        )
        raise Refused(413, BAD_REQUEST, message)
    return _Described(plan.residual, plan.bounds_of, reads_null(client))


def _task_texts(table: Table, files: FileSet, ordinals: npt.NDArray[np.int64], shared: _Described) -> list[bytes]:
    """Tasks of files. Raises Refused (406) for files that JSON cannot tell of."""
    # columns that are dropped and would be read are refused by the plan
    described = describe_tasks_without_dropped if shared.tells_null else describe_tasks_without_null
    try:
        return described(table, files, ordinals, shared.residual, with_bounds=shared.bounds)
    except BadData as error:
        message = f"{str(error).rstrip('.')}; let the client plan this read (scan-planning-mode client)"
        raise Refused(406, UNSUPPORTED, message) from None
