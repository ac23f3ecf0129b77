"""A Warehouse on a volume that is mounted: a directory.

Links inside it are followed where people name files (``look``, ``match``), and never where files are opened.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.ids import OWN_DIRECTORY
from skipstone_core.reasons import Reason

from skipstone.storage.beneath import Beneath, open_beneath
from skipstone.storage.durable import keep_content, keep_copy, keep_first, read_first
from skipstone.storage.globs import Glob
from skipstone.storage.port import READ_AHEAD, Entry, Folder, LeadsOut, NoFile, Replaced, is_hidden

RACERS = 8
#: What is said of a file that is gone, or has a link in its place or on its way.
_NOT_THERE = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR})


@dataclass(frozen=True)
class Volume:
    """The directory ``root``, absolute; links that lead to it are followed."""

    root: str

    def where(self, path: str = "") -> str:
        """The absolute path."""
        return str(Path(self.root) / path)

    @property
    def directory(self) -> Path:
        """Where it really is; for readers that take files of volumes only."""
        return Path(self.root).resolve()

    def address(self, path: str = "") -> str:
        """A URL of the local file system."""
        return f"file://{self.directory / path}"

    def hadoop_settings(self) -> Mapping[str, str]:
        """None."""
        return {}

    def may_hold(self, path: str) -> bool:
        """Return whether it is a folder."""
        return (self.directory / path).is_dir()

    def is_taken(self, path: str) -> bool:
        """An empty folder is something."""
        with self._used(path):
            return (self.directory / path).exists()

    def look(self, path: str) -> Entry | Folder | None:
        """Return the entry or folder at ``path``, None for none. A link that leads nowhere is none."""
        root = self.directory
        with self._used(path):
            return _entry_or_folder(root, root / path) if (root / path).exists() else None

    def match(self, pattern: str) -> tuple[Entry | Folder, ...]:
        """As ``pathlib`` matches, without what is hidden."""
        root = self.directory
        with self._used(pattern):
            visible = [path for path in sorted(set(root.glob(pattern))) if not is_hidden(str(path.relative_to(root)))]
            # Newer Pythons take files for what a pattern that ends with ** names
            wanted = [path for path in visible if path.is_dir()] if Glob(pattern).only_folders else visible
            return tuple(_entry_or_folder(root, path) for path in wanted)

    def entries(self, paths: Sequence[str]) -> Iterator[Entry | None]:
        """One after the other: those of one folder cost little."""
        with self._used(""), Beneath(self.directory) as root:
            for path in paths:
                yield _described(root, path)

    def list(self, folder: str) -> Iterator[Entry]:
        """Links are left out."""
        root = self.directory
        with self._used(folder), Beneath(root) as opened:
            for above, _, names in os.walk(root / folder):
                for name in names:
                    entry = _described(opened, Path(above, name).relative_to(root).as_posix())
                    if entry is not None:
                        yield entry

    def read(self, path: str) -> bytes:
        """The whole content."""
        with self._used(path, is_there=True):
            return read_first(self.directory / path)

    def open(self, what: Entry | str, *, buffering: int = READ_AHEAD) -> BinaryIO:
        """The file; for an Entry without following a link."""
        if isinstance(what, Entry):
            return self._open_entry(what)
        with self._used(what, is_there=True):
            return (self.directory / what).open("rb", buffering=buffering)

    def _open_entry(self, entry: Entry) -> BinaryIO:
        try:
            opened = open_beneath(self.directory / entry.path, entry.path)
        except OSError as error:
            if error.errno in _NOT_THERE or isinstance(error, FileNotFoundError):
                raise Replaced(entry.path) from error
            raise self._unavailable(entry.path, error) from error
        status = os.fstat(opened.fileno())
        if (status.st_size, status.st_mtime_ns) != (entry.size, entry.version):
            opened.close()
            raise Replaced(entry.path)
        return opened

    def create(self, path: str, content: bytes) -> bytes:
        """By a hard link, or by a folder where there are none."""
        with self._used(path):
            keep_first(self.directory / path, content)
            return read_first(self.directory / path)

    def keep_content(self, path: str, content: bytes) -> None:
        """By a rename."""
        with self._used(path):
            keep_content(self.directory / path, content)

    def keep_copy(self, path: str, source: Path) -> None:
        """By a rename."""
        with self._used(path):
            keep_copy(self.directory / path, source)

    def move(self, path: str, to: str) -> None:
        """By a rename."""
        with self._used(path):
            (self.directory / path).replace(self.directory / to)

    def delete(self, path: str) -> None:
        """Remove an entry: a file, or the folder that ``create`` made without hard links."""
        with self._used(path):
            _remove(self.directory / path)

    def delete_folder(self, folder: str) -> None:
        """With what is in it; links in it are not followed."""
        with self._used(folder):
            _remove(self.directory / folder)

    def probe(self, name: str) -> None:
        """Raises BadSpec (PATH_OUTSIDE_WAREHOUSE) too, when the folder of our records is a link."""
        folder = Path(self.root) / OWN_DIRECTORY
        if folder.is_symlink() or not folder.resolve().is_relative_to(self.directory):
            message = f"{folder} is a symbolic link; replace it by a folder of the volume."
            raise BadSpec(Reason.PATH_OUTSIDE_WAREHOUSE, message, field="spec.storage")
        try:
            folder.mkdir(exist_ok=True)
            _probe(folder / name)
        except OSError as error:
            message = f"The storage at {self.root} cannot be used: {error.strerror or error}."
            raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message) from error

    def probe_reading(self) -> None:
        """The folder is looked into, and the first file below it opened."""
        with self._used(""):
            for first in self.directory.iterdir():
                if first.is_file():
                    first.open("rb").close()
                break

    @contextmanager
    def _used(self, path: str, *, is_there: bool = False) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if is_there:
                raise
            raise self._unavailable(path, error) from error
        except OSError as error:
            raise self._unavailable(path, error) from error

    def _unavailable(self, path: str, error: OSError) -> DependencyUnavailable:
        return DependencyUnavailable(
            Reason.STORAGE_UNAVAILABLE,
            f"'{self.directory / path}' cannot be used: {error}; fix the Warehouse's storage and try again",
        )


def _entry_or_folder(root: Path, path: Path) -> Entry | Folder:
    resolved = _resolved(root, path)
    if not resolved.is_dir():
        return _entry(root, resolved)
    visible = [(item, item.is_dir()) for item in sorted(resolved.iterdir()) if not is_hidden(item.name)]
    return Folder(
        path="" if resolved == root else resolved.relative_to(root).as_posix(),
        files=tuple(_entry(root, _resolved(root, item)) for item, is_folder in visible if not is_folder),
        folders=tuple(item.name for item, is_folder in visible if is_folder),
    )


def _resolved(root: Path, path: Path) -> Path:
    """Where links lead. Raises LeadsOut when that is outside of ``root`` or among our records, else NoFile."""
    try:
        resolved = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise NoFile(str(path)) from error
    if not resolved.is_relative_to(root) or resolved.is_relative_to(root / OWN_DIRECTORY):
        raise LeadsOut(str(path))
    return resolved


def _entry(root: Path, path: Path) -> Entry:
    with Beneath(root) as opened:
        entry = _described(opened, path.relative_to(root).as_posix())
    if entry is None:
        raise NoFile(str(path))
    return entry


def _described(root: Beneath, path: str) -> Entry | None:
    """The state of a regular file; None when there is none (a link put in its place, or on its way, is none)."""
    try:
        status = root.status(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return Entry(path=path, size=status.st_size, version=status.st_mtime_ns, touched_ns=status.st_ctime_ns)


def _probe(folder: Path) -> None:
    """Exactly one of several racing creators may win and all must read what it wrote: so sources are pinned."""
    _remove(folder)
    offers = [f"skipstone {number}".encode() for number in range(RACERS)]
    with ThreadPoolExecutor(RACERS) as pool:
        contents = set(pool.map(lambda offer: _offer(folder / "first", offer), offers))
    if len(contents) != 1:
        raise OSError(f"{RACERS} creators of one file at once left {len(contents)} contents instead of one")
    if not contents <= set(offers):
        raise OSError("a file that was just written reads differently")
    _remove(folder)
    if folder.exists():
        raise OSError("a folder that was deleted is still there")


def _offer(path: Path, content: bytes) -> bytes:
    keep_first(path, content)
    return read_first(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
