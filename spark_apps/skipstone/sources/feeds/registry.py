"""The tools whose feeds are read: each is a module of ``tools``, which is found there by itself.

Called by ``files`` and the merge run. What is true of a tool without reading its files is told in the core
(``contract.formats``).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from skipstone_core.contract.formats import ChangeFormat

from skipstone.sources.feeds import tools
from skipstone.sources.feeds.batches import BatchMaker
from skipstone.sources.feeds.shapes import PLAIN, ValueStyle
from skipstone.storage.port import StoredFile

#: Reads a file of a feed into batches of changes, in its order. Raises BadData naming the file and the line.
Batches = Callable[[StoredFile, BatchMaker], Iterator[pa.RecordBatch]]
#: Says of a change, by the ``origin``, ``log`` and ``order`` of its Mark, whether these tell it from all others.
IsExact = Callable[[str, str | None, bytes], bool]


@dataclass(frozen=True, kw_only=True)
class FileOrder:
    """Files that are read in another order than that of their paths.

    ``place``: of a path, by which files are ordered. ``is_full_load``: whether the rows of a file are older than all
    changes of the same job.
    """

    place: Callable[[str], tuple[bool, str, str]]
    is_full_load: Callable[[str], bool]


def always_exact(_origin: str, _log: str | None, _order: bytes) -> bool:
    """Every change has a place of its own in the log."""
    return True


@dataclass(frozen=True, kw_only=True)
class Tool:
    """How a tool's feeds are read.

    ``values``: how it writes values. ``order``: of its files, if not that of their paths. ``is_exact``: else a change
    is known by its file and line too.
    """

    format: ChangeFormat
    batches: Batches
    values: ValueStyle = PLAIN
    order: FileOrder | None = None
    is_exact: IsExact = always_exact


def tool_of(change_format: ChangeFormat) -> Tool:
    """Return how feeds of ``change_format`` are read."""
    return all_tools()[change_format]


@cache
def all_tools() -> Mapping[ChangeFormat, Tool]:
    """Return the tools of all modules of ``tools``, which each name theirs in TOOLS."""
    names = [module.name for module in pkgutil.iter_modules(tools.__path__, f"{tools.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    return {tool.format: tool for module in modules for tool in module.TOOLS}
