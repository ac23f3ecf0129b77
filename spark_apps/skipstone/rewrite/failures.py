"""Carries a user's error out of a Spark task: what a task raises reaches the driver as text only.

Tasks wrap their work in ``caught``; the driver opens every result with ``opened``.
Must not catch anything else: a bug stays an exception.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TypeVar, cast

from skipstone_core.errors import BadData, BadSpec, DependencyUnavailable, UserError
from skipstone_core.reasons import Reason

T = TypeVar("T")
_KINDS: dict[str, type[UserError]] = {kind.__name__: kind for kind in (BadSpec, BadData, DependencyUnavailable)}


def caught(work: Callable[[], T]) -> bytes:
    """Do ``work``; its pickled result, or the user's error it raised."""
    try:
        return pickle.dumps((None, work()))
    except UserError as error:
        message = str(error).removeprefix(f"{error.field}: ")
        return pickle.dumps(((type(error).__name__, error.reason.value, message, error.field), None))


def opened(answer: bytes) -> object:
    """The result in ``answer``; raises the user's error when the task met one."""
    failure, result = cast("tuple[tuple[str, str, str, str] | None, object]", pickle.loads(answer))
    if failure is None:
        return result
    kind, reason, message, field = failure
    raise _KINDS.get(kind, UserError)(Reason(reason), message, field=field)
