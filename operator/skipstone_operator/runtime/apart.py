"""Work on a thread and an event loop of its own, which a busy loop cannot keep waiting.

Used by ``__main__`` for the Lease: a pass that computes for long must not cost the operator its Lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass
class _Inside:
    """The loop and the task on the thread; ``begun`` is set when both are there."""

    begun: threading.Event = field(default_factory=threading.Event)
    loop: asyncio.AbstractEventLoop | None = None
    task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        self.begun.wait()
        if self.loop is not None and self.task is not None:
            # A loop that is closed has ended its task.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.task.cancel)


async def run_apart(work: Work, name: str) -> None:
    """Run ``work`` on a thread of this name until it ends; raises what it raises. Canceling ends it first."""
    outside = asyncio.get_running_loop()
    ended: asyncio.Future[None] = outside.create_future()
    inside = _Inside()

    def settle(error: BaseException | None) -> None:
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    def run() -> None:
        error = _run_inside(work, inside)
        with contextlib.suppress(RuntimeError):
            outside.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        inside.cancel()
        # What it raised while it was told to end is of no use any more.
        await asyncio.wait([ended])
        ended.exception()
        raise


def _run_inside(work: Work, inside: _Inside) -> Exception | None:
    async def run() -> None:
        inside.loop, inside.task = asyncio.get_running_loop(), asyncio.current_task()
        inside.begun.set()
        await work()

    try:
        asyncio.run(run())
    except asyncio.CancelledError:
        return None
    except Exception as error:  # noqa: BLE001 - raised again where the work is waited for
        return error
    finally:
        inside.begun.set()
    return None
