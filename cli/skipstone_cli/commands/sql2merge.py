"""``skipstone sql2merge``: a MERGE statement as the manifest of a MergeJob. Talks to no API server."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from skipstone_core.contract.formats import SourceFormat

from skipstone_cli.errors import CliError, ExitCode, unreadable
from skipstone_cli.kinds import require_name
from skipstone_cli.output.screen import Screen
from skipstone_cli.translating.dialects import find_dialect
from skipstone_cli.translating.jobs import Chosen, translate

_UNTYPED = (SourceFormat.CSV, SourceFormat.JSON)
_ZONE = re.compile("[A-Za-z0-9_+:/-]{1,64}")
_LOCATION = re.compile("[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_TYPE = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|timestamptz|string|uuid|binary"
    r"|decimal\(([1-9]|[12]\d|3[0-8]), ?(\d|[12]\d|3[0-8])\)|fixed\[[1-9]\d{0,5}\]"
)
#: Bounds of a MergeJob, as its CustomResourceDefinition has them.
MAX_PATHS = 64
MAX_PATH = 1024


@dataclass(frozen=True, kw_only=True)
class Options:
    """A user's options for a statement, as given. ``file``: with the statement, ``-`` for standard input."""

    file: str
    dialect: str = "spark"
    table: str = ""
    source_table: str = ""
    name: str = ""
    paths: Sequence[str] = ()
    format: str = SourceFormat.PARQUET
    location: str = ""
    columns: Sequence[str] = ()
    are_folders: bool = False
    delta: str = ""
    zone: str = ""
    keys_are_set: bool = False


def run_sql2merge(screen: Screen, options: Options) -> ExitCode:
    """Print the manifest, or what cannot be translated. Raises CliError for an option that is wrong."""
    chosen = _chosen(options)
    translation = translate(_read(options.file), chosen)
    for sentence in translation.refused:
        screen.note(f"skipstone: {sentence}")
    if translation.manifest is None:
        return ExitCode.REFUSED
    for note in translation.notes:
        screen.note(f"note: {note}")
    screen.pass_on(yaml.safe_dump(translation.manifest, sort_keys=False, width=120, allow_unicode=False))
    return ExitCode.FINE


def _chosen(options: Options) -> Chosen:
    return Chosen(
        dialect=find_dialect(options.dialect),
        table=require_name(options.table, "a Table") if options.table else "",
        source_table=_source_table(options),
        name=require_name(options.name, "a MergeJob") if options.name else "",
        paths=_paths(options.paths),
        format=_format(options.format),
        are_folders=_of_files("--hive-partitions", _are_folders(options), options),
        delta=_delta(options),
        location=_of_files("--location", _location(options.location), options),
        columns=_of_files("--column", _columns(options), options),
        zone=_zone(options.zone),
        keys_are_set=options.keys_are_set,
    )


def _source_table(options: Options) -> str:
    others = {"--path": options.paths, "--delta": options.delta}
    if options.source_table and (other := next((name for name, value in others.items() if value), "")):
        raise CliError(f"--source-table and {other} both name the rows of the source: leave one of them out")
    return require_name(options.source_table, "a Table") if options.source_table else ""


def _paths(paths: Sequence[str]) -> Sequence[str]:
    for path in paths:
        _require_inside(path, "--path", "feeds/2026-01/*.parquet")
    if len(paths) > MAX_PATHS:
        raise CliError(f"--path is given {len(paths)} times, and a MergeJob takes {MAX_PATHS}: use a pattern with *")
    return paths


def _require_inside(path: str, option: str, example: str) -> None:
    parts = path.split("/")
    first = next((part for part in parts if part not in ("", ".")), "")
    is_outside = path.startswith("/") or "://" in path or "\\" in path or ".." in parts or first == ".skipstone"
    if is_outside or not 0 < len(path) <= MAX_PATH:
        raise CliError(
            f"{option} is {path!r}: write a path below the root of the Warehouse or of --location, such as {example}"
        )


def _are_folders(options: Options) -> bool:
    if options.are_folders and _format(options.format) != SourceFormat.PARQUET:
        raise CliError("--hive-partitions is for the format Parquet only: leave out one of both")
    return options.are_folders


def _delta(options: Options) -> str:
    if not options.delta:
        return ""
    given = {"--path": options.paths, "--column": options.columns, "--hive-partitions": options.are_folders}
    if others := [name for name, value in given.items() if value]:
        raise CliError(f"--delta names a table, which {others[0]} does not describe: leave out one of both")
    _require_inside(options.delta, "--delta", "lake/events")
    return options.delta


def _format(name: str) -> str:
    known = {known_format.value.lower(): known_format.value for known_format in SourceFormat}
    if name.lower() not in known:
        raise CliError(f"--format is {name!r}: use {', '.join(known.values())}")
    return known[name.lower()]


def _location(name: str) -> str:
    if name and not _LOCATION.fullmatch(name):
        raise CliError(f"--location is {name!r}: name an entry of spec.sourceLocations of the Warehouse")
    return name


Option = TypeVar("Option")


def _of_files(name: str, value: Option, options: Options) -> Option:
    if value and not options.paths and not options.delta:
        raise CliError(f"{name} is for files: name these with --path")
    return value


def _columns(options: Options) -> Mapping[str, str]:
    pairs = dict(column.rpartition("=")[::2] for column in options.columns)
    if pairs and not options.are_folders and _format(options.format) not in _UNTYPED:
        raise CliError(
            "--column is for the formats Csv and Json, and for --hive-partitions: other files carry their own types"
        )
    for name, kind in pairs.items():
        if not name or not _TYPE.fullmatch(kind):
            raise CliError(f"--column has {name}={kind}: write a name and an Iceberg type, such as id=long")
    return pairs


def _zone(name: str) -> str:
    if not name:
        return ""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CliError(f"--time-zone is {name!r}: name a time zone, such as UTC or Europe/Berlin") from None
    if not _ZONE.fullmatch(name):
        raise CliError(f"--time-zone is {name!r}: name a time zone, such as UTC or Europe/Berlin")
    return name


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error
