"""Ends the process of a run. Imported first of all by the scripts of runs, and called last of all by them.

Only the standard library may be imported here.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

#: The code of the run, as soon as it is known.
_codes: list[int] = []


def end_with(run: Callable[[], int]) -> NoReturn:
    """Call ``run``, and end this process with the exit code that it returns, or that of a SystemExit in it.

    Threads are waited for and functions registered with atexit are called as ever, but the interpreter is not taken
    down. A native thread that calls Python meanwhile, such as one of Arrow's that reads ahead for a reader who has
    left, aborts the process then or makes it hang, after the run has told its outcome. What else ``run`` raises is
    raised.
    """
    try:
        code = run()
    except SystemExit as end:
        _codes.append(_code_of(end))
        raise
    _codes.append(code)
    sys.exit(code)


def _code_of(end: SystemExit) -> int:
    """Return the interpreter's exit code: a message, which it prints, is 1."""
    if end.code is None:
        return 0
    return end.code if isinstance(end.code, int) else 1


def _leave() -> None:
    if not _codes:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads what is left
            if stream is not None:  # closed before Python began
                stream.flush()
    os._exit(_codes[0] & 0xFF)


atexit.register(_leave)  # before all others, so that it is called last
