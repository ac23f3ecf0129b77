"""The data plane: what notebooks import and what the Spark applications run.

``skipstone.sql``, ``rewrite``, ``explain`` and ``no_index`` are for Spark sessions; PySpark is needed when they are
called, not when the package is imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skipstone.query.plans.session import explain, no_index, rewrite, sql

__all__ = ["explain", "no_index", "rewrite", "sql"]


class _Package(ModuleType):
    """Imports the calls of notebook users at their first use.

    It gives the name ``rewrite`` to the call: importing the room of that name would else put the room in its place.
    """

    def __getattr__(self, name: str) -> object:
        """A call, by its name."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _call(name)

    @property
    def rewrite(self) -> object:
        """Rewrites a DataFrame."""
        return _call("rewrite")

    @rewrite.setter
    def rewrite(self, room: ModuleType) -> None:
        """Leave the room to its full name."""


def _call(name: str) -> object:
    from skipstone.query.plans import session

    return getattr(session, name)


sys.modules[__name__].__class__ = _Package
