"""What catalogs answer for tables, decoded once for each metadata file.

Must not keep what depends on credentials: an answer's config is left alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, NamedTuple

from cachetools import LRUCache
from pydantic import ValidationError as PydanticValidationError
from pydantic_core import from_json
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.caches import ByteCache
from skipstone.serving.answers import UNSUPPORTED, Refused
from skipstone.serving.protocol import MODE, SERVER_MODE
from skipstone.tables.decoding.completing import completed

_BUDGET: Final = 128 * 1024 * 1024
#: Bytes that parsed metadata takes in memory for each byte of JSON.
_EXPANSION: Final = 6


@dataclass(frozen=True)
class DecodedTable:
    """Metadata of a table and the name of its file; of a table without one, a name made of what it holds."""

    location: str
    metadata: TableMetadata
    nbytes: int

    @property
    def key(self) -> tuple[str, str]:
        """Return the key of its memory."""
        return self.location, str(self.metadata.table_uuid)


_decoded: ByteCache[tuple[str, str], DecodedTable] = ByteCache("loaded tables", _BUDGET, lambda kept: kept.nbytes)


class TaggedTable(NamedTuple):
    """A table with the ETag of the answer that told of it."""

    etag: str
    table: DecodedTable


class TaggedTables:
    """Which answer was the last for each path, as long as what it told is in the cache."""

    def __init__(self, most: int = 10_000) -> None:
        self._kept: LRUCache[str, tuple[str, tuple[str, str]]] = LRUCache(most)
        self._lock = Lock()

    def find(self, path: str) -> TaggedTable | None:
        """Return the known table at ``path``."""
        with self._lock:
            etag, key = self._kept.get(path, ("", ("", "")))
        table = _decoded.peek(key) if etag else None
        return None if table is None else TaggedTable(etag, table)

    def note(self, path: str, etag: str, table: DecodedTable) -> None:
        """Know from now on that ``etag`` is of ``table``."""
        with self._lock:
            self._kept[path] = (etag, table.key)


def decode_answer(body: bytes) -> DecodedTable:
    """The table in a catalog's answer to loading it.

    Raises DependencyUnavailable (CATALOG_UNAVAILABLE) when it is not one, Refused (406) when the catalog wants
    to plan scans of the table by itself.
    """
    answer = _object(body)
    _require_unplanned(answer.get("config"))
    metadata = answer.get("metadata")
    if not isinstance(metadata, dict):
        raise _no_answer()
    location = answer.get("metadata-location") or f"sha256:{hashlib.sha256(body).hexdigest()}"
    key = (str(location), str(metadata.get("table-uuid")))
    return _decoded.get(key, lambda: DecodedTable(str(location), _parsed(metadata), len(body) * _EXPANSION))


def _require_unplanned(config: object) -> None:
    """A catalog that insists on planning may leave out what the caller may not read: nobody gets past it here."""
    if isinstance(config, dict) and config.get(MODE) == SERVER_MODE:
        message = "the catalog plans scans of this table by itself: read it through the address of the catalog"
        raise Refused(406, UNSUPPORTED, message)


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = from_json(body)
    except ValueError:
        raise _no_answer() from None
    if not isinstance(answer, dict):
        raise _no_answer()
    return answer


def _parsed(metadata: dict[str, Any]) -> TableMetadata:
    try:
        return completed(TableMetadataUtil.parse_obj(metadata))
    except (ValidationError, PydanticValidationError) as error:
        raise _no_answer() from error


def _no_answer() -> DependencyUnavailable:
    message = "the catalog answers something that is not a table: check spec.catalog.uri and what is on the way to it"
    return DependencyUnavailable(Reason.CATALOG_UNAVAILABLE, message)
