"""The data plane: what notebooks import and what the Spark applications run.

``skipstone.enable``, ``disable``, ``sql``, ``rewrite``, ``explain`` and ``no_index`` are for Spark sessions; PySpark is
needed when they are called, not when the package is imported. ``skipstone.open`` is for programs without Spark and
without a cluster; it needs the package skipstone-local.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if find_spec("pyiceberg") is None:
    from skipstone_core.errors import way_to_install

    raise ImportError(f"skipstone lacks the packages by which it reads tables: {way_to_install('spark')}")

__all__ = ["LakeError", "LakeTimeout", "disable", "enable", "explain", "no_index", "open", "rewrite", "sql"]

if TYPE_CHECKING:
    from skipstone_core.errors import LakeError, LakeTimeout

    from skipstone.lakes import open_lake as open
    from skipstone.query.plans.everywhere import disable, enable
    from skipstone.query.plans.session import explain, no_index, rewrite, sql
else:
    #: Where each call is, and what it is called there if it is not its own name.
    _PLACES = {
        "LakeError": ("skipstone_core.errors", ""),
        "LakeTimeout": ("skipstone_core.errors", ""),
        "disable": ("skipstone.query.plans.everywhere", ""),
        "enable": ("skipstone.query.plans.everywhere", ""),
        "open": ("skipstone.lakes", "open_lake"),
    }

    def __getattr__(name: str) -> object:
        """The calls of notebook users, imported at their first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, other = _PLACES.get(name, ("skipstone.query.plans.session", ""))
        return getattr(import_module(module), other or name)
