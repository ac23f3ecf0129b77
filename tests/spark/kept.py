"""A folder that every test finds as it was made once.

Tables name their files by absolute paths, so a copy is put back into the same place. Used by tests that change a lake
whose making takes longer than the test.
"""

from __future__ import annotations

import shutil
from pathlib import Path


class Kept:
    """A folder with a copy, made when nothing in it is open."""

    def __init__(self, folder: Path, beside: Path) -> None:
        """Copy ``folder`` into ``beside``, so deep that the check of tables takes the copy for no catalog."""
        self._folder, self._copy = folder, beside / "of" / "lake"
        shutil.copytree(folder, self._copy)

    def restored(self) -> Path:
        """The folder as it was."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._copy, self._folder)
        return self._folder
