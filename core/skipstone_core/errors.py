"""Errors that both planes raise.

Raised for bad input and for bugs only; races between writers are outcomes (see commits), never exceptions.
Must not know how an error is shown: an edge turns it into a condition, an exit code or a log line.
"""

from __future__ import annotations

from skipstone_core.reasons import Reason


def way_to_install(extra: str) -> str:
    """Return how a user installs what ``extra`` of the distribution brings, as the way out of an error."""
    return (
        f"run pip install '.[{extra}]' in a checkout of Skipstone, or pip install 'skipstone[{extra}]' where a package "
        "index has it"
    )


class SkipstoneError(Exception):
    """Base of every error that Skipstone raises on purpose. Its text is one sentence for a user."""


class UserError(SkipstoneError):
    """Something a user can fix: carries the reason shown in conditions and the field or object concerned."""

    def __init__(self, reason: Reason, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.reason = reason
        self.field = field


class BadSpec(UserError):
    """The request can never succeed as written (exit code 64)."""


class BadData(UserError):
    """The data named by the request cannot be used (exit code 65)."""


class DependencyUnavailable(UserError):
    """A catalog, a volume or another service did not answer; trying again may help (exit code 69)."""


class OutcomeUnknown(SkipstoneError):
    """A commit may or may not have landed; nothing may be deleted (exit code 75)."""


class ContractViolation(SkipstoneError):
    """The other plane sent what this version cannot read."""


class LakeError(SkipstoneError):
    """A request of a Python program was not done, and what it asked for is not in the table and never will be.

    ``reason``: one word, as in conditions; ``sentence``: what is wrong; ``way_out``: what to do, empty if nothing is
    known. Its text is both.
    """

    def __init__(self, reason: str, sentence: str, way_out: str = "") -> None:
        super().__init__(": ".join(part for part in (sentence.rstrip("."), way_out) if part))
        self.reason = reason
        self.sentence = sentence
        self.way_out = way_out


class LakeTimeout(LakeError, TimeoutError):
    """A request was not done in the time given, and goes on. ``sentence`` says how far it is."""
