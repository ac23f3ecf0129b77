"""Logs of Delta tables: which files are live at a version, and which were appended since another one.

Used by the data plane, which reads the commits and checkpoints. Follows the protocol of Delta Lake for readers; what a
log asks of readers that is not known here is refused, because a reader that goes on would return other rows. Must not
read files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from skipstone_core.codec import JsonObject
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

FIELD = "spec.source.delta"
#: Features of readers under which files are read as without them, if no file uses a deletion vector.
_KNOWN_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck", "deletionVectors", "columnMapping", "v2Checkpoint"})
_MAPPING_MODE = "delta.columnMapping.mode"
_MAPPED_READER, _FEATURES_READER = 2, 3
#: What an absolute path begins with, also as Hadoop writes it (file:/x). A relative one has no colon before a slash.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, kw_only=True)
class DeltaFile:
    """A data file: its path below the table, its size in bytes, and the text of each partition column; None: null."""

    path: str
    size: int
    partition: Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True)
class DeltaCommit:
    """The actions of one version."""

    version: int
    actions: Sequence[JsonObject]


@dataclass(frozen=True, kw_only=True)
class DeltaTableFacts:
    """``table_id``: of the table, whatever its place. ``columns``: types by name, as Delta names them, at the top."""

    table_id: str
    columns: Mapping[str, str]
    partition_columns: tuple[str, ...]


@dataclass
class DeltaReplay:
    """The actions of a log up to a version, the oldest first. ``name``: of the table, for messages."""

    name: str
    _files: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    _protocol: JsonObject | None = None
    _metadata: JsonObject | None = None

    def apply(self, actions: Iterable[JsonObject]) -> None:
        """Apply the actions of one commit, or of a checkpoint."""
        added: list[JsonObject] = []
        for action in actions:
            self._protocol = action.get("protocol") or self._protocol
            self._metadata = action.get("metaData") or self._metadata
            if remove := action.get("remove"):
                self._files.pop(_key(remove), None)
            if add := action.get("add"):
                added.append(add)
        self._files.update({_key(add): add for add in added})

    def facts(self) -> DeltaTableFacts:
        """The facts of the table. Raises BadData (SOURCE_UNREADABLE) for a table that needs another reader."""
        if self._protocol is None or self._metadata is None:
            raise unreadable(self.name, "its log has no protocol and schema: restore the log")
        _require_known(self.name, self._protocol, self._metadata)
        try:
            fields = json.loads(self._metadata["schemaString"])["fields"]
            columns = {str(column["name"]): column["type"] for column in fields}
            return DeltaTableFacts(
                table_id=str(self._metadata["id"]),
                columns={name: kind if isinstance(kind, str) else str(kind["type"]) for name, kind in columns.items()},
                partition_columns=tuple(map(str, self._metadata.get("partitionColumns") or ())),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise unreadable(self.name, f"its schema cannot be read ({error}): restore the log") from error

    def files(self) -> tuple[DeltaFile, ...]:
        """The live files, by path. Raises BadData (SOURCE_UNREADABLE)."""
        return _data_files(self.name, self._files.values())


def appended_files(name: str, commits: Iterable[DeltaCommit]) -> tuple[DeltaFile, ...]:
    """The files of the table ``name`` that ``commits`` appended, by path.

    Rewrites of files, which say that they change no data, are passed over. Raises BadData (SOURCE_CHANGED) for a commit
    that removed rows, (SOURCE_UNREADABLE) as ``DeltaReplay`` does.
    """
    added: list[JsonObject] = []
    for commit in commits:
        removes = [action["remove"] for action in commit.actions if action.get("remove")]
        if any(remove.get("dataChange", True) for remove in removes):
            raise BadData(
                Reason.SOURCE_CHANGED,
                f"version {commit.version} of {name} changed or removed rows that earlier versions have, which a read "
                "of new rows does not show: read the whole table by a job without consume New, into a table where its "
                f"rows are not yet or by a merge, then go on with startingVersion {commit.version + 1}",
                field=FIELD,
            )
        adds = [action["add"] for action in commit.actions if action.get("add")]
        added += [add for add in adds if add.get("dataChange", True)]
    return _data_files(name, added)


def unreadable(name: str, why: str) -> BadData:
    """Why the table cannot be read."""
    return BadData(Reason.SOURCE_UNREADABLE, f"the Delta table '{name}' cannot be read: {why}", field=FIELD)


def _key(action: JsonObject) -> tuple[str, str]:
    vector = action.get("deletionVector") or {}
    return str(action["path"]), f"{vector.get('pathOrInlineDv', '')}@{vector.get('offset', '')}" if vector else ""


def _data_files(name: str, adds: Iterable[JsonObject]) -> tuple[DeltaFile, ...]:
    files: dict[str, DeltaFile] = {}
    for add in adds:
        if add.get("deletionVector"):
            raise unreadable(
                name,
                "some of its rows are deleted by deletion vectors, which Skipstone does not read: write its files "
                "again with REORG TABLE … APPLY (PURGE), and read the version after that",
            )
        path = unquote(str(add["path"]))
        if path.startswith("/") or _SCHEME.match(str(add["path"])) or ".." in path.split("/"):
            raise unreadable(
                name,
                f"its file '{path}' is outside of its folder, as files of shallow clones are: write its rows to a "
                "table of their own, and read that one",
            )
        partition = {column: text or None for column, text in (add.get("partitionValues") or {}).items()}
        files[path] = DeltaFile(path=path, size=int(add["size"]), partition=partition)
    return tuple(files[path] for path in sorted(files))


def _require_known(name: str, protocol: JsonObject, metadata: JsonObject) -> None:
    reader = int(protocol.get("minReaderVersion", 1))
    mode = (metadata.get("configuration") or {}).get(_MAPPING_MODE, "none")
    if reader >= _MAPPED_READER and mode != "none":
        raise unreadable(
            name,
            f"it maps names of columns ({_MAPPING_MODE} = {mode}), so that its files have other ones: write its rows "
            "to a table without column mapping, and read that one",
        )
    features = set(protocol.get("readerFeatures") or ()) if reader >= _FEATURES_READER else set()
    if reader > _FEATURES_READER or not features <= _KNOWN_FEATURES:
        needed = ", ".join(sorted(features - _KNOWN_FEATURES)) or f"reader version {reader}"
        raise unreadable(
            name,
            f"it needs a reader that knows {needed}, which Skipstone does not: write its rows to a table without it",
        )
