"""What ends a command before its end, as one sentence and an exit code.

Raised by every room, caught in ``commands`` only.
"""

from __future__ import annotations

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


class NotFound(CliError):
    """The API server has no such object."""


class Forbidden(CliError):
    """The user lacks a right. ``right``: what is missing, such as ``list pods in namespace lake``."""

    def __init__(self, right: str, said: str) -> None:
        super().__init__(f"you may not {right}: ask for this right ({said})")
        self.right = right


class Refused(CliError):
    """The API server takes a request for wrong. ``status``: of HTTP; ``reason``: such as Invalid; ``said``: why."""

    def __init__(self, message: str, *, status: int, reason: str, said: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.said = said


class Expired(CliError):
    """The list that is being read in pages is gone from the API server's memory (410)."""


class Unreachable(CliError):
    """The API server does not answer, or what answers is no Kubernetes API server."""

    code = ExitCode.UNREACHABLE


class OutcomeFailed(CliError):
    """What the command waited for ended badly, or not in time."""

    code = ExitCode.FAILED
