"""What ends a command before its end, as one sentence and an exit code.

Raised by every room, caught in ``commands`` only.
"""

from __future__ import annotations

import os
from enum import IntEnum

from skipstone_core.errors import SkipstoneError


class ExitCode(IntEnum):
    """The exit codes of every command."""

    FINE = 0
    FAILED = 1
    REFUSED = 2
    UNREACHABLE = 3
    INTERRUPTED = 130


class CliError(SkipstoneError):
    """Something a user can correct: a name, an option, a right, the kubeconfig."""

    code = ExitCode.REFUSED


def unreadable(file: object, error: OSError | ValueError) -> CliError:
    """The error for a file that a user names and that cannot be read as text: why, and what to do."""
    match error:
        case FileNotFoundError() | NotADirectoryError():
            why = f"it does not exist: name a file that does; a relative path begins in {os.path.realpath(os.curdir)}"
        case IsADirectoryError():
            why = "it is a folder: name a file"
        case OSError():
            why = f"{error.strerror or error}: name a file that you may read"
        case _:
            why = f"it is not text in UTF-8 ({error}): save it as such"
    return CliError(f"{file} cannot be read: {why}")


class NotFound(CliError):
    """The API server has no such object."""


class Forbidden(CliError):
    """The user lacks a right. ``right``: what is missing, such as ``list pods in namespace lake``."""

    def __init__(self, right: str, answer: str) -> None:
        super().__init__(f"you may not {right}: ask for this right ({answer})")
        self.right = right


class Refused(CliError):
    """The API server refuses a request as invalid.

    ``status``: of HTTP; ``reason``: such as Invalid; ``answer``: the message of the server.
    """

    def __init__(self, message: str, *, status: int, reason: str, answer: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.answer = answer


class Expired(CliError):
    """The list that is being read in pages is gone from the API server's memory (410)."""


class Unreachable(CliError):
    """The API server does not answer, or what answers is not a Kubernetes API server."""

    code = ExitCode.UNREACHABLE


class OutcomeFailed(CliError):
    """The awaited work failed, or did not end in time."""

    code = ExitCode.FAILED
