"""Which commits keep the lineage of rows: equal ids and equal numbers of the last change then mean equal rows.

Used by readers of changes in tables of format version 3. Must not read files: only what a snapshot says of itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Entries of a snapshot's summary with this prefix are written by runs of ours only.
_OURS = "skipstone."
_SPARK = "spark"
_ENGINE, _ENGINE_VERSION, _ICEBERG_VERSION = "engine-name", "engine-version", "iceberg-version"
_RELEASE = re.compile(r"\b(\d+\.\d+)\.\d+")
#: Releases of Spark and of Iceberg with which lineage is kept, as tests of this project compare it row by row.
_TESTED = frozenset({("4.1", "1.12")})
#: Spark appends files of other tables too, with the lineage that they have there.
_APPEND = "append"


def keeps_lineage(operation: str, summary: Mapping[str, str]) -> bool:
    """Return whether a snapshot was written by an engine that changes a row's number whenever it changes the row.

    False says nothing about the snapshot: its files have to be looked at.
    """
    if any(name.startswith(_OURS) for name in summary):
        return True
    if summary.get(_ENGINE) != _SPARK or operation == _APPEND:
        return False
    releases = [_RELEASE.search(summary.get(name, "")) for name in (_ENGINE_VERSION, _ICEBERG_VERSION)]
    return tuple(release and release[1] for release in releases) in _TESTED
