"""The data plane: what notebooks import and what the Spark applications run.

``skipstone.sql``, ``rewrite``, ``explain`` and ``no_index`` are for Spark sessions; PySpark is needed when they are
called, not when the package is imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

_CALLS = ("explain", "no_index", "sql")

__all__ = ["explain", "no_index", "rewrite", "sql"]


def __getattr__(name: str) -> Any:
    """The calls of notebook users, imported at their first use."""
    if name not in _CALLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _call(name)


def _call(name: str) -> Any:
    from skipstone.query.plans import session

    return getattr(session, name)


class _Package(ModuleType):
    """Gives the name ``rewrite`` to the call: importing the room of that name would else put the room in its place."""

    @property
    def rewrite(self) -> Any:
        """Rewrites a DataFrame."""
        return _call("rewrite")

    @rewrite.setter
    def rewrite(self, room: ModuleType) -> None:
        """Leave the room to its full name."""


sys.modules[__name__].__class__ = _Package
