"""The log of a pod, from the folder where whoever runs it writes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from skipstone_local.server.answers.refusals import Refusal, bad_request
from skipstone_local.server.desk import Desk
from skipstone_local.server.requests.calls import ApiCall
from skipstone_local.server.writing.session import ApiSession
from skipstone_local.server.writing.updating import find
from skipstone_local.store import JsonObject

PIECE = 64 * 1024
#: Seconds between two looks at a log that is followed.
PAUSE = 0.2
ENDED = ("Succeeded", "Failed")


async def open_log(desk: Desk, call: ApiCall, folder: Path, is_ending: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The log piece by piece. ``folder`` has those of all pods. Raises Refusal for a pod that has none.

    A log that is followed ends with its pod, and when ``is_ending``.
    """
    pod = await desk.run(lambda session: find(session, call.target))
    container = _container(pod, call.query.get("container", ""))
    path = folder / pod["metadata"]["uid"] / "log"
    if call.flag("previous"):
        raise bad_request(f'previous terminated container "{container}" in pod "{call.target.name}" not found')
    if not path.exists() and not call.flag("follow"):
        raise bad_request(f'container "{container}" in pod "{call.target.name}" is waiting to start: ContainerCreating')
    start = await asyncio.to_thread(_tail_start, path, call.number("tailLines"))

    async def is_over() -> bool:
        return not call.flag("follow") or is_ending() or await desk.run(lambda session: _is_over(session, call))

    return _pieces(path, start, call.number("limitBytes"), is_over)


def _container(pod: JsonObject, wanted: str) -> str:
    names = [str(each.get("name")) for each in pod["spec"].get("containers") or ()]
    if wanted and wanted not in names:
        raise bad_request(f"container {wanted} is not valid for pod {pod['metadata']['name']}")
    return wanted or (names[0] if names else "")


async def _pieces(
    path: Path, at: int, left: int | None, is_over: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    while True:
        ended = await is_over()
        while piece := await asyncio.to_thread(_read, path, at):
            piece = piece if left is None else piece[:left]
            left = None if left is None else left - len(piece)
            at += len(piece)
            yield piece
            if left == 0:
                return
        if ended:
            return
        await asyncio.sleep(PAUSE)


def _is_over(session: ApiSession, call: ApiCall) -> bool:
    """Return whether nothing will be written any more: the pod has ended, or is gone."""
    try:
        pod = find(session, call.target)
    except Refusal:
        return True
    return (pod.get("status") or {}).get("phase") in ENDED


def _read(path: Path, at: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as log:
        log.seek(at)
        return log.read(PIECE)


def _tail_start(path: Path, lines: int | None) -> int:
    """Where the last ``lines`` lines begin; 0 for all of them."""
    if lines is None or not path.exists():
        return 0
    with path.open("rb") as log:
        end = at = log.seek(0, 2)
        if lines == 0:
            return end
        newlines = 0
        while at > 0:
            begin = max(at - PIECE, 0)
            log.seek(begin)
            piece = log.read(at - begin)
            for index in range(len(piece) - 1, -1, -1):
                # The newline that ends the last line begins no other.
                newlines += piece[index] == 0x0A and begin + index != end - 1
                if newlines == lines:
                    return begin + index + 1
            at = begin
    return 0
