"""Imports what a driver or a worker needs in less time.

Called first of all by the scripts of runs. Only the standard library may be imported here.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Nothing about other modules. Raises ModuleNotFoundError for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(f"No module named {fullname!r} while a driver starts", name=fullname)
        return None


@contextmanager
def lean_imports() -> Iterator[None]:
    """Run a block of imports without pandas and without garbage collection.

    Arrow imports pandas with the first value that it makes if it can, to recognize objects of pandas: that is a third
    of all that a driver imports, and no run has such objects. Arrow looks for it again when somebody asks for one, and
    so does PySpark; after the block both find it.

    Modules stay until the process ends: to look for garbage among them, now or later, is in vain.
    """
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    gc.disable()
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        gc.freeze()
        gc.enable()
