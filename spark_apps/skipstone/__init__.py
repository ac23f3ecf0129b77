"""The data plane: what notebooks import and what the Spark applications run.

``skipstone.enable``, ``disable``, ``sql``, ``rewrite``, ``explain`` and ``no_index`` are for Spark sessions; PySpark is
needed when they are called, not when the package is imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if find_spec("pyiceberg") is None:
    raise ImportError("skipstone lacks the packages by which it reads tables: run pip install 'skipstone[spark]'")

__all__ = ["disable", "enable", "explain", "no_index", "rewrite", "sql"]

if TYPE_CHECKING:
    from skipstone.query.plans.everywhere import disable, enable
    from skipstone.query.plans.session import explain, no_index, rewrite, sql
else:

    def __getattr__(name: str) -> object:
        """The calls of notebook users, imported at their first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from skipstone.query.plans import everywhere, session

        return getattr(everywhere if name in ("disable", "enable") else session, name)
