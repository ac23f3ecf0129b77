"""Tokens of pages: which files of a plan an answer left for ``/tasks``, sealed so that any replica can answer.

A token is not a permission: whoever brings it loads the table with credentials of their own. The seal keeps a caller
from making this server work on what it never planned. Must not know HTTP.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skipstone.serving.answers import Refused, bad_request
from skipstone.tables.filesets import FileSet

_VERSION: Final = b"1"
_SEAL_BYTES: Final = hashlib.sha256().digest_size
#: Bytes of a token, and of what is in it.
TOKEN_BYTES: Final = 2 * 1024 * 1024
_CONTENT_BYTES: Final = 16 * 1024 * 1024
_BROKEN: Final = "the plan-task is damaged or of another server: plan the scan again"


@dataclass(frozen=True)
class TaskPage:
    """Files of one plan. ``digest``: of their paths, in the order of ``ordinals``.

    ``residual``: as the plan gave it. ``bounds``: ids of the columns whose bounds are told.
    """

    table_uuid: str
    snapshot_id: int | None
    residual: Any
    bounds: tuple[int, ...]
    ordinals: npt.NDArray[np.int64]
    digest: str


def digest_of(files: FileSet, ordinals: npt.NDArray[np.int64]) -> str:
    """Tells whether ordinals still mean the same files."""
    paths = files.entries(("path",), ordinals).column("path").take(pa.array(np.arange(len(ordinals))))
    digest = hashlib.blake2b(digest_size=16)
    for buffer in paths.buffers()[1:]:  # where each path ends, and all of them one after the other
        digest.update(buffer or b"")
    return digest.hexdigest()


class PageSeal:
    """Seals and opens tokens with ``key``, which all replicas have."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, page: TaskPage) -> str:
        """The token of ``page``."""
        steps = np.diff(page.ordinals, prepend=np.int64(0)).astype("<i4")
        head = [page.table_uuid, page.snapshot_id, page.residual, page.bounds, page.digest]
        content = zlib.compress(json.dumps(head).encode() + b"\0" + steps.tobytes(), 1)
        sealed = _VERSION + self._seal(content) + content
        return base64.urlsafe_b64encode(sealed).decode()

    def page(self, token: object) -> TaskPage:
        """The page of ``token``. Raises Refused (400) for a token that this key did not seal."""
        content = _content(self._opened(token))
        head, _, steps = content.partition(b"\0")
        table_uuid, snapshot_id, residual, bounds, digest = json.loads(head)
        ordinals = np.cumsum(np.frombuffer(steps, "<i4").astype(np.int64))
        return TaskPage(table_uuid, snapshot_id, residual, tuple(bounds), ordinals, digest)

    def _opened(self, token: object) -> bytes:
        if not isinstance(token, str) or len(token) > TOKEN_BYTES:
            raise _broken()
        try:
            sealed = base64.b64decode(token.encode("ascii"), b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise _broken() from None
        body = sealed.removeprefix(_VERSION)
        seal, content = body[:_SEAL_BYTES], body[_SEAL_BYTES:]
        if body == sealed or not hmac.compare_digest(seal, self._seal(content)):
            raise _broken()
        return content

    def _seal(self, content: bytes) -> bytes:
        return hmac.digest(self._key, _VERSION + content, "sha256")


def _content(compressed: bytes) -> bytes:
    """What this server sealed, which is not a bomb, but costs little to bound."""
    reader = zlib.decompressobj()
    content = reader.decompress(compressed, _CONTENT_BYTES)
    if not reader.eof:
        raise _broken()
    return content


def _broken() -> Refused:
    return bad_request(_BROKEN)
