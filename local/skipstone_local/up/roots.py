"""The folder that `up` serves, and how: what is checked and started before anything large is loaded."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from skipstone_cli.errors import CliError

from skipstone_local.owners import UnfitFolder, make_folder, require_own
from skipstone_local.places import RootFolder
from skipstone_local.up.operators import OperatorProcess

#: Characters that addresses of files, properties or shells read as something else.
_MISREAD = re.compile(r"[\x00-\x1f\x7f#?%\\\"'`$,;:]")
Tell = Callable[[str], None]


class BadRoot(CliError):
    """The root folder cannot hold tables. ``sentence``: why, without the way out that its text has, too."""

    def __init__(self, sentence: str, way_out: str) -> None:
        super().__init__(f"{sentence}: {way_out}")
        self.sentence = sentence


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """How to serve. ``once``: end as soon as everything is settled; ``python``: an interpreter with the data plane.

    ``namespace``: of objects that name none.
    """

    once: bool = False
    python: str = sys.executable
    namespace: str = "default"


@contextmanager
def prepared(folder: RootFolder) -> Iterator[OperatorProcess]:
    """An operator's process that gets ready; it is ended behind the block. Raises BadRoot."""
    try:
        make_folder(folder)
    except UnfitFolder as error:
        raise BadRoot(error.sentence, error.way_out) from error
    operator = OperatorProcess(folder.log)
    operator.prepare()
    try:
        yield operator
    finally:
        operator.stop()


def check_root(folder: RootFolder) -> RootFolder:
    """The folder, whose path becomes part of addresses of files. Raises BadRoot and OSError."""
    if misread := _MISREAD.search(str(folder.path)):
        raise BadRoot(
            f"{str(folder.path)!r} cannot be the folder of tables, since addresses of files cannot hold {misread[0]!r}",
            "choose another by --root or SKIPSTONE_LOCAL",
        )
    try:
        require_own(folder)
    except UnfitFolder as error:
        raise BadRoot(error.sentence, error.way_out) from error
    origin = folder.origin.read_text() if folder.origin.exists() else ""
    if origin and origin != str(folder.path.resolve()) and any(folder.path.glob("claims/*/*/*")):
        raise BadRoot(
            f"{folder.path} was moved or copied from {origin}, by which its tables name their files",
            "move it back there, or choose another folder",
        )
    return folder
