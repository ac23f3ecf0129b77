"""Sources of loads and merges, brought into the Warehouse's folder for as long as a job reads them.

Files that lie there already are read where they are. Others are linked, or copied from another disk, and so are whole
folders of Delta tables and of values; rows that the program holds are written as Parquet.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skipstone_cli.reading import JsonObject, name_of
from skipstone_core.errors import LakeError

from skipstone_local.lake.finding import LakeTables
from skipstone_local.lake.frames import write_parquet

#: Where sources of this room lie below the Warehouse's root; a folder for each job, by its name.
UPLOADS = "uploads"
#: As many paths as the source of a job takes.
MAX_PATHS = 64
INVALID = "InvalidSpec"
FORMATS = {
    ".csv": "Csv", ".tsv": "Csv", ".json": "Json", ".jsonl": "Json", ".ndjson": "Json", ".parquet": "Parquet",
    ".pq": "Parquet", ".orc": "Orc", ".avro": "Avro",
}  # fmt: skip
COMPRESSED = (".gz", ".bz2", ".zst", ".zstd", ".snappy", ".lz4", ".deflate", ".xz")
#: Of a disk without space, and of a user without space on it.
FULL = (errno.ENOSPC, errno.EDQUOT)
WAY_OUT = "make room there, and check that the files can be read"
HEADER = {"header": "true"}
#: The folder of the log of a Delta table.
DELTA_LOG = "_delta_log"
PathName = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class LakeRows:
    """Rows of a table of the lake as a source. ``resource``: the name of its Table.

    All rows on which ``where`` is true, of the current snapshot, that of ``snapshot_id``, or the newest of the branch
    or tag ``ref``; with ``from_snapshot_id`` only those that later snapshots appended, or all that they changed.
    """

    resource: str
    where: str = ""
    snapshot_id: int | None = None
    ref: str = ""
    from_snapshot_id: int | None = None
    changes: bool = False


@dataclass(frozen=True, kw_only=True)
class LakeDelta:
    """Rows of a Delta table as a source, whose folder is ``path``.

    All rows of the newest version, or of ``version``; with ``starting_version`` only those that this version and later
    ones appended. ``where``: only partitions on which it is true.
    """

    path: PathName
    version: int | None = None
    starting_version: int | None = None
    where: str = ""

    def fields(self) -> JsonObject:
        """All fields of ``spec.source.delta`` but the path."""
        numbers = {"version": self.version, "startingVersion": self.starting_version}
        given: JsonObject = {name: str(number) for name, number in numbers.items() if number is not None}
        return given | ({"where": self.where} if self.where else {})


@dataclass(frozen=True, kw_only=True)
class LakeFolders:
    """Rows of Parquet files in all folders below ``paths`` as a source, with the values in the names of folders.

    ``where``: only files in folders on which it is true. ``types``: Iceberg types of columns in names of folders.
    """

    paths: Sequence[PathName]
    where: str = ""
    types: Mapping[str, str] = field(default_factory=dict)

    def fields(self) -> JsonObject:
        """The fields of ``spec.source.hivePartitions``."""
        columns = [{"name": name, "type": kind} for name, kind in self.types.items()]
        return {**({"columns": columns} if columns else {}), **({"where": self.where} if self.where else {})}


class SourceCalls:
    """The calls of a lake that name sources of its loads and merges."""

    _tables: LakeTables

    def rows(  # noqa: PLR0913 - one for each way to choose rows
        self,
        table: str,
        where: str = "",
        *,
        snapshot_id: int | None = None,
        ref: str = "",
        from_snapshot_id: int | None = None,
        changes: bool = False,
    ) -> LakeRows:
        """Rows of a table as the source of ``load`` and ``merge``, which read them by its indexes. Raises LakeError.

        ``snapshot_id``, or ``ref``, a branch or a tag: in place of the current rows. ``from_snapshot_id``: only rows
        that later snapshots appended; with ``changes`` all that they changed, for merges without clauses.
        """
        name = name_of(self._tables.require(table))
        which = {"snapshot_id": snapshot_id, "from_snapshot_id": from_snapshot_id}
        return LakeRows(resource=name, where=where, ref=ref, changes=changes, **which)

    def delta(
        self, path: PathName, where: str = "", *, version: int | None = None, starting_version: int | None = None
    ) -> LakeDelta:
        """Rows of the Delta table in a folder as the source of ``load`` and ``merge``: those of its newest version.

        ``where``: only partitions on which it is true. ``version``: another version; ``starting_version``: only rows
        that this version and later ones appended.
        """
        return LakeDelta(path=path, where=where, version=version, starting_version=starting_version)

    def folders(
        self, paths: PathName | Sequence[PathName], where: str = "", *, types: Mapping[str, str] | None = None
    ) -> LakeFolders:
        """Rows of Parquet files in folders such as ``day=2026-01-31`` as the source of ``load`` and ``merge``.

        All files below ``paths`` are read, with the values in the names of their folders. ``where``: only folders on
        which it is true. ``types``: Iceberg types of these values, where no column of the table gives one.
        """
        named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        return LakeFolders(paths=named, where=where, types=types or {})


def build_rows(rows: LakeRows, *, with_files: bool = False) -> JsonObject:
    """``spec.source`` of a job. Raises LakeError if arguments are given that only files have."""
    if with_files:
        raise LakeError(INVALID, "format and options are for files, and the source is a table", "leave them out")
    numbers = {"snapshot": rows.snapshot_id, "fromSnapshot": rows.from_snapshot_id}
    texts = {"ref": rows.ref, "where": rows.where}
    given: JsonObject = {name: str(number) for name, number in numbers.items() if number is not None}
    given |= {name: text for name, text in texts.items() if text}
    return {"table": {"name": rows.resource, **given, **({"changes": True} if rows.changes else {})}}


@dataclass(frozen=True)
class Uploads:
    """The folder of sources of one Warehouse. ``root``: that of the Warehouse, whatever links lead there."""

    root: Path

    def __post_init__(self) -> None:
        """Files are compared by where they are."""
        object.__setattr__(self, "root", self.root.resolve())

    def bring(self, source: Any, job: str, *, format: str = "", options: dict[str, str] | None = None) -> JsonObject:
        """``spec.source`` of the job: paths, a path pattern or a list of them, folders, a Delta table, or rows.

        Raises LakeError; then nothing of the source is left in the folder.
        """
        try:
            return self._bring(source, job, format, options)
        except OSError as error:
            self.forget(job)
            reason = "DiskFull" if error.errno in FULL else "StorageUnavailable"
            raise LakeError(reason, f"the source cannot be brought into {self.root}: {error}", WAY_OUT) from error
        except BaseException:
            self.forget(job)
            raise

    def _bring(self, source: Any, job: str, format: str, options: dict[str, str] | None) -> JsonObject:
        if isinstance(source, LakeDelta | LakeFolders):
            if format or options is not None:
                raise LakeError(
                    INVALID, "format and options are for plain files, and the source is not", "leave them out"
                )
            return self._bring_folders(source, job)
        if not _is_path(source):
            folder = self._folder(job)
            write_parquet(source, folder / "rows.parquet")
            return {"format": "Parquet", "paths": [self._relative(folder)]}
        files = find_files([source] if isinstance(source, str | os.PathLike) else list(source))
        kind = format.capitalize() or find_format(files)
        given = options if options is not None else HEADER if kind == "Csv" else {}
        return {"format": kind, "paths": self._placed(files, job), **({"options": given} if given else {})}

    def _bring_folders(self, source: LakeDelta | LakeFolders, job: str) -> JsonObject:
        if isinstance(source, LakeDelta):
            folder = _find_folder(source.path)
            if not (folder / DELTA_LOG).is_dir():
                raise LakeError(
                    "SourceNotFound", f"{source.path} holds no Delta table: it has no {DELTA_LOG}", "correct the path"
                )
            (place,) = self._placed_folders([folder], job)
            return {"delta": {"path": str(place.relative_to(self.root)), **source.fields()}}
        folders = [_find_folder(path) for path in source.paths]
        paths = [self._relative(place) for place in self._placed_folders(folders, job)]
        return {"format": "Parquet", "paths": paths, "hivePartitions": source.fields()}

    def _placed_folders(self, folders: Sequence[Path], job: str) -> list[Path]:
        """Where the job finds each of the folders: where it is, or linked file by file."""
        places, known = [], self.root / UPLOADS / job
        for number, folder in enumerate(folders):
            place = folder if folder.is_relative_to(self.root) else known / str(number)
            for file in _files_below(folder) if place != folder else ():
                target = place / file.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(file, target)
            places.append(place)
        return places

    def forget(self, job: str) -> None:
        """Remove what a job read."""
        shutil.rmtree(self.root / UPLOADS / job, ignore_errors=True)

    def jobs(self) -> list[str]:
        """The jobs that have sources here."""
        folder = self.root / UPLOADS
        return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []

    def _placed(self, files: Sequence[Path], job: str) -> list[str]:
        """Where the job finds the files: each where it is, or all in a folder. Raises LakeError."""
        inside = [file for file in files if file.is_relative_to(self.root)]
        if len(inside) == len(files):
            return self._named(files)
        if inside:
            raise LakeError(
                INVALID,
                f"{inside[0]} lies in lake.files and other files of the source do not",
                "name the two kinds in two calls",
            )
        folder = self._folder(job)
        for place, file in enumerate(files):
            _link(file, folder / f"{place:05d}-{file.name.lstrip('._')}")
        return [self._relative(folder)]

    def _named(self, files: Sequence[Path]) -> list[str]:
        """Files below the root by their paths; if these are many, by the folders that hold nothing else."""
        places = list(files)
        if len(files) > MAX_PATHS:
            chosen = set(files)
            whole = {folder for folder in {file.parent for file in files} if chosen.issuperset(_list_folder(folder))}
            places = list(dict.fromkeys(file.parent if file.parent in whole else file for file in files))
        if len(places) > MAX_PATHS:
            raise LakeError(
                INVALID,
                f"{len(files)} files of lake.files are named one by one, and a job takes {MAX_PATHS} paths",
                "name whole folders, or name the files in several calls",
            )
        return [self._relative(place) for place in places]

    def _folder(self, job: str) -> Path:
        folder = self.root / UPLOADS / job
        folder.mkdir(parents=True)
        return folder

    def _relative(self, path: Path) -> str:
        return glob.escape(str(path.relative_to(self.root)))


def _is_path(source: Any) -> bool:
    if isinstance(source, str | os.PathLike):
        return True
    return (
        isinstance(source, list | tuple)
        and bool(source)
        and all(isinstance(item, str | os.PathLike) for item in source)
    )


def _find_folder(name: PathName) -> Path:
    """A folder without links in its path. Raises LakeError."""
    folder = Path(name).expanduser().absolute()
    if not folder.is_dir():
        raise LakeError("SourceNotFound", f"{name} is not a folder", "correct the path")
    return folder.resolve()


def _files_below(folder: Path) -> Iterator[Path]:
    """All files, those of a Delta log first: when a log names a file, it is there already."""
    log = folder / DELTA_LOG
    yield from [file for file in log.rglob("*") if file.is_file()]
    yield from [file for file in folder.rglob("*") if file.is_file() and not file.is_relative_to(log)]


def find_files(names: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files that paths name, those of folders and patterns among them, in order, each once. Raises LakeError."""
    files: list[Path] = []
    for name in names:
        path = Path(name).expanduser().absolute()
        if path.is_dir():
            listed = _list_folder(path)
        elif path.exists():
            listed = [path]
        else:
            # Path.glob wants the folder that a pattern begins in, and knows no absolute ones.
            matches = glob.iglob(str(path), recursive=True)  # noqa: PTH207
            listed = sorted(file for match in matches if (file := Path(match)).is_file())
        if not listed:
            raise LakeError("SourceNotFound", f"{name} names no file", "correct the path or the pattern")
        # A link of a file's own is followed by nobody here: what it leads to may lie outside of the root.
        files += [file.parent.resolve() / file.name for file in listed]
    return list(dict.fromkeys(files))


def _list_folder(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.iterdir()) if file.is_file() and file.name[0] not in "._"]


def find_format(files: Sequence[Path]) -> str:
    """The format that all files have by their names. Raises LakeError."""
    formats = {FORMATS.get(_suffix(file), "") for file in files}
    if len(formats) == 1 and (kind := formats.pop()):
        return kind
    raise LakeError(
        INVALID,
        f"the names of the files do not say one format, such as that of {files[0].name}",
        "name it by format=, one of Csv, Json, Parquet, Orc and Avro",
    )


def _suffix(file: Path) -> str:
    name = file.name.lower()
    for compressed in COMPRESSED:
        name = name.removesuffix(compressed)
    return Path(name).suffix


def _link(file: Path, place: Path) -> None:
    try:
        place.hardlink_to(file.resolve(strict=True))
    except OSError:
        shutil.copy2(file, place)
