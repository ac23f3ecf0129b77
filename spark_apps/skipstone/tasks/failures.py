"""Carries a user's error out of a Spark task: what a task raises reaches the driver as text only.

Tasks wrap their work in ``caught``; the driver opens every result with ``opened``. What feeds other tasks has no result
of its own: it works inside ``carrying``, and the driver asks ``carried`` about what Spark raised.
Must not catch anything else: a bug stays an exception, and so does what another attempt of the task may get past.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

from skipstone_core.errors import BadData, BadSpec, DependencyUnavailable, UserError
from skipstone_core.reasons import Reason

from skipstone.causes import NO_ROOM, no_room

T = TypeVar("T")
_CARRIED = re.compile(r"\[skipstone-task-error:([A-Za-z0-9+/=]+)\]")
_KINDS: dict[str, type[UserError]] = {kind.__name__: kind for kind in (BadSpec, BadData, DependencyUnavailable)}


def caught(work: Callable[[], T], storage: str) -> bytes:
    """Do ``work``; its pickled result, or the user's error it raised. ``storage``: the location that it writes to."""
    try:
        return pickle.dumps((None, work()))
    except UserError as error:
        return _packed(error)
    except OSError as error:
        if (failure := storage_failure(error, storage)) is None:
            raise
        return _packed(failure)


@contextmanager
def storing(storage: str) -> Iterator[None]:
    """Raise what ``storage_failure`` makes of an error of the block, for work of the driver itself."""
    try:
        yield
    except OSError as error:
        if (failure := storage_failure(error, storage)) is None:
            raise
        raise failure from error


class TaskFailed(Exception):
    """A user's error on its way through Spark; its text holds it whole."""


@contextmanager
def carrying() -> Iterator[None]:
    """Let a user's error that the block raises reach the driver, for ``carried``."""
    try:
        yield
    except UserError as error:
        packed = base64.b64encode(json.dumps(_facts(error)).encode()).decode()
        raise TaskFailed(f"{error} [skipstone-task-error:{packed}]") from error


def carried(error: Exception) -> UserError | None:
    """The user's error that a task of ``error`` raised inside ``carrying``, if one did."""
    if (match := _CARRIED.search(str(error))) is None:
        return None
    return _made(*json.loads(base64.b64decode(match[1])))


def storage_failure(error: OSError, storage: str) -> DependencyUnavailable | None:
    """A full ``storage`` or a file that is gone as a user's error; None for what trying again at once may fix."""
    if error.errno in NO_ROOM:
        return no_room(error, storage)
    if isinstance(error, FileNotFoundError):
        message = f"a file that was there a moment ago is gone: {error}"
    else:
        return None
    return DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message)


def _packed(error: UserError) -> bytes:
    return pickle.dumps((_facts(error), None))


def _facts(error: UserError) -> tuple[str, str, str, str]:
    message = str(error).removeprefix(f"{error.field}: ")
    kind = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), type(error).__name__)
    return kind, error.reason.value, message, error.field


def _made(kind: str, reason: str, message: str, field: str) -> UserError:
    return _KINDS.get(kind, UserError)(Reason(reason), message, field=field)


def opened(answer: bytes) -> object:
    """The result in ``answer``; raises the user's error when the task met one."""
    failure, result = cast("tuple[tuple[str, str, str, str] | None, object]", pickle.loads(answer))
    if failure is None:
        return result
    raise _made(*failure)
