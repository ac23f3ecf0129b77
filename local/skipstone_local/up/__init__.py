"""One process that serves a folder: the API server, the runner and the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone_local.up.entry import run
from skipstone_local.up.roots import UpOptions

__all__ = ["UpOptions", "run", "serving_all"]

if TYPE_CHECKING:
    from skipstone_local.up.serving import serving_all
else:

    def __getattr__(name: str) -> object:
        """Load slow modules at their first use."""
        if name != "serving_all":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from skipstone_local.up.serving import serving_all

        return serving_all
