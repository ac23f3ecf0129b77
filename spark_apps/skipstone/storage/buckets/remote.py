"""Objects of tables, read by few requests: none asks for a size, near ranges come together, and ends are remembered.

Reached by the options of Arrow's file system for S3, which are those of the loaded table. Every range of one opening is
of one version. Whatever goes wrong is asked once more by Arrow, whose errors are those that everybody knows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict
from urllib.parse import urlsplit

import obstore
from cachetools import LRUCache
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import S3Store

from skipstone.storage.buckets.kinds.s3 import ACCESS, SECRET, TOKEN
from skipstone.storage.buckets.objectfiles import TAIL_BYTES, ObjectFile
from skipstone.storage.buckets.refusals import code_of, status_of
from skipstone.storage.port import Replaced

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, S3Config, S3Credential

#: Least bytes of a request: what stands near is mostly wanted next.
LEAST_BYTES = 64 * 1024
#: Who reads so many bytes at once goes on reading: more are asked for.
_LARGE_BYTES = 512 * 1024
#: Bytes of pieces that an open file keeps, besides its end; what was asked for ahead is kept beyond that.
KEPT_BYTES = 8 * 1024 * 1024
#: Bytes that are asked for ahead at most.
AHEAD_BYTES = 64 * 1024 * 1024
#: Bytes of ends of objects that a process remembers: what tables name never changes.
TAILS_BYTES = 64 * 1024 * 1024
#: Ranges that are nearer to one another are asked for as one.
_NEAR_BYTES = 256 * 1024
#: By which Amazon's libraries find keys without a profile or the machine's own address for them.
_KEYS = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
#: Codes of S3 that say what to do.
_REASONS = frozenset(
    {
        "ExpiredToken",
        "InvalidAccessKeyId",
        "NoSuchBucket",
        "QuotaExceeded",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
#: Objects whose sizes a process remembers.
_MOST_SIZES = 10_000
#: Requests for ranges that are under way at once, in the whole process.
_CONCURRENT = 16


@dataclass(frozen=True)
class _Piece:
    """Bytes of an object from ``start`` on, the ``size`` of it all, and its version."""

    start: int
    content: bytes
    size: int
    version: str | None

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.content)

    def cut(self, start: int, end: int) -> bytes:
        """The bytes between two places of the object."""
        return self.content[start - self.start : end - self.start]


class RemoteBucket:
    """One bucket, and what this process remembers of its objects."""

    def __init__(self, name: str, store: S3Store) -> None:
        """``store``: without a prefix."""
        self.name = name
        self._store = store
        self._sizes: LRUCache[str, int] = LRUCache(_MOST_SIZES)
        self._lock = threading.Lock()

    def note_size(self, key: str, size: int) -> None:
        """Remember the size of an object that was put."""
        with self._lock:
            self._sizes[key] = size

    def known_size(self, key: str) -> int | None:
        """The size of an object that was put, or whose end was read."""
        tail = _tails.find(self, key)
        with self._lock:
            return tail.size if tail else self._sizes.get(key)

    def tail(self, key: str) -> _Piece:
        """The end of an object, fetched once. Raises what obstore raises."""
        piece = _tails.find(self, key)
        if piece is None:
            piece = self.get(key, {"range": {"suffix": TAIL_BYTES}})
            _tails.keep(self, key, piece)
        return piece

    def get(self, key: str, options: GetOptions) -> _Piece:
        """Bytes of an object. Raises what obstore raises; Replaced for another version than is asked for."""
        try:
            result = obstore.get(self._store, key, options=options)
            content = bytes(result.bytes())
        except PreconditionError:
            self.forget(key)
            raise Replaced(key) from None
        start = result.range[0]
        if len(content) != result.range[1] - start:
            raise OSError(f"{len(content)} bytes of '{key}' came instead of {result.range[1] - start}")
        return _Piece(start, content, result.meta["size"], result.meta["e_tag"])

    def is_there(self, key: str, otherwise: Callable[[], bool]) -> bool:
        """Return whether an object has the name; ``otherwise`` asks by Arrow. Raises OSError.

        By a read: the answer to HEAD tells no reason, and not a missing bucket from a missing object.
        """
        try:
            obstore.get_range(self._store, key, start=0, end=1)
        except (BaseError, OSError, ValueError) as error:
            self.require_reason(key, error)
            return False if isinstance(error, FileNotFoundError) else otherwise()
        return True

    def require_reason(self, key: str, error: Exception) -> None:
        """Raise OSError, in Arrow's words, for a refusal whose reason Arrow does not hear: it looks by HEAD first."""
        code = code_of(error)
        if code in _REASONS:
            place = f"for key '{key}' in bucket '{self.name}'"
            message = f"AWS Error {code} (HTTP status {status_of(error)}) during GetObject operation"
            raise OSError(f"{place}: {message}: Unable to parse ExceptionName: {code}") from None

    def forget(self, key: str) -> None:
        """Another object has the name, or none."""
        _tails.forget(self, key)


class _Tails:
    """Ends of objects of all buckets together: who is given other keys all the time has one bucket after the other."""

    def __init__(self) -> None:
        self._kept: LRUCache[tuple[RemoteBucket, str], _Piece] = LRUCache(
            TAILS_BYTES, getsizeof=lambda tail: len(tail.content) + 512
        )
        self._lock = threading.Lock()

    def find(self, bucket: RemoteBucket, key: str) -> _Piece | None:
        """The end of an object, if it is remembered."""
        with self._lock:
            return self._kept.get((bucket, key))

    def keep(self, bucket: RemoteBucket, key: str, tail: _Piece) -> None:
        """Remember the end of an object."""
        with self._lock:
            self._kept[bucket, key] = tail

    def forget(self, bucket: RemoteBucket, key: str) -> None:
        """Another object has the name, or none."""
        with self._lock:
            self._kept.pop((bucket, key), None)


_tails = _Tails()


class ArrowFile(Protocol):
    """A file that Arrow opens."""

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Bytes from a place on."""
        ...

    def size(self) -> int:
        """Of the file."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class ArrowOptions(TypedDict):
    """Those options of Arrow's file system for S3 that are looked at here."""

    access_key: str | None
    secret_key: str | None
    session_token: str | None
    anonymous: bool
    region: str
    scheme: str
    endpoint_override: str
    role_arn: str
    default_metadata: object
    proxy_options: dict[str, str]
    force_virtual_addressing: bool
    tls_ca_file_path: str


@dataclass
class RemoteContent:
    """One object for ``ObjectFile``. ``otherwise`` opens it by Arrow, when a request fails."""

    bucket: RemoteBucket
    key: str
    otherwise: Callable[[], ArrowFile]
    known_size: int | None = None
    version: str | None = None
    pieces: list[_Piece] = field(default_factory=list)
    ahead: list[_Piece] = field(default_factory=list)
    _other: ArrowFile | None = None

    def size(self) -> int:
        """By the request for the object's end, unless something was read."""
        if self.known_size is None:
            self._keep(self._get_or_none(lambda: self.bucket.tail(self.key)))
        return self.known_size if self.known_size is not None else self._by_arrow_size()

    def fetch(self, start: int, end: int) -> bytes:
        """By a request for at least LEAST_BYTES, unless it is there."""
        for piece in (*self.ahead, *self.pieces):
            if piece.start <= start and end <= piece.end:
                return piece.cut(start, end)
        if self.known_size is not None and self.known_size - start <= TAIL_BYTES:
            tail = self._get_or_none(lambda: self.bucket.tail(self.key))
            if tail is not None and tail.start <= start and self._keep(tail):
                return tail.cut(start, min(end, tail.end))
        most = end + 3 * (end - start) if end - start >= _LARGE_BYTES else start + LEAST_BYTES
        fetched = self._ask(start, max(end, most))
        return self._by_arrow(start, end) if fetched is None else fetched.cut(start, min(end, fetched.end))

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Ask for all these bytes at once, as few and concurrent requests. What fails is asked for when it is read."""
        wanted = [place for place in joined(ranges) if not self._has(*place)]
        if len(wanted) > 1 and sum(end - start for start, end in wanted) <= AHEAD_BYTES and self.size():
            pieces = _pool().map(lambda place: self._ask(*place, keep=False), wanted)
            self.ahead = [piece for piece in pieces if piece is not None]

    def close(self) -> None:
        """Let go of what is kept, and of Arrow's file."""
        self.pieces, self.ahead = [], []
        if self._other is not None:
            self._other.close()

    def _has(self, start: int, end: int) -> bool:
        return any(piece.start <= start and end <= piece.end for piece in (*self.ahead, *self.pieces))

    def _ask(self, start: int, end: int, *, keep: bool = True) -> _Piece | None:
        if self.known_size is not None:
            end = min(end, self.known_size)
        options: GetOptions = {"range": (start, end)}
        if self.version is not None:
            options["if_match"] = self.version
        piece = self._get_or_none(lambda: self.bucket.get(self.key, options))
        if keep:
            self._keep(piece)
        return piece

    def _get_or_none(self, get: Callable[[], _Piece]) -> _Piece | None:
        """None when only Arrow can tell what is wrong."""
        if self._other is not None:
            return None
        try:
            return get()
        except Replaced:
            raise
        except (BaseError, OSError, ValueError) as error:
            self.bucket.require_reason(self.key, error)
            return None

    def _keep(self, fetched: _Piece | None) -> bool:
        """Remember it for later reads. Raises Replaced when it is of another version than what was read."""
        if fetched is None:
            return False
        if self.version is not None and fetched.version != self.version:
            self.bucket.forget(self.key)
            raise Replaced(self.key)
        self.known_size, self.version = fetched.size, fetched.version
        self.pieces.insert(0, fetched)
        kept = 0
        for at, piece in enumerate(self.pieces):
            kept += len(piece.content)
            if at and kept > KEPT_BYTES:
                del self.pieces[at:]
                break
        return True

    def _by_arrow(self, start: int, end: int) -> bytes:
        """Raises OSError as Arrow tells it."""
        return self._arrow().read_at(min(end, self.size()) - start, start)

    def _by_arrow_size(self) -> int:
        self.known_size = self._arrow().size()
        return self.known_size

    def _arrow(self) -> ArrowFile:
        if self._other is None:
            self._other = self.otherwise()
        return self._other


class RemoteFile(ObjectFile):
    """An object as a file for Arrow and PyIceberg."""

    def __init__(self, content: RemoteContent) -> None:
        """Asks for nothing before it is read."""
        super().__init__(content)
        self._remote = content

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Ask for bytes that will be read soon."""
        self._remote.prefetch(ranges)

    def close(self) -> None:
        """Let go of what is kept."""
        self._remote.close()
        super().close()


def joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes in few ranges, with what lies between those that are near to one another."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1] + _NEAR_BYTES:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def remote_bucket(name: str, options: ArrowOptions) -> RemoteBucket | None:
    """The bucket ``name`` as Arrow's ``options`` reach it; None where only Arrow knows how."""
    reachable = reached(name, options)
    return _opened(*reachable) if reachable else None


@dataclass(frozen=True)
class Place:
    """A bucket and how it is reached. ``endpoint``: with its scheme; empty for Amazon's."""

    bucket: str
    endpoint: str
    region: str
    is_virtual: bool
    bundle: str
    is_anonymous: bool


#: An access key, its secret and its token; each None when programs look for it themselves.
Keys = tuple[str | None, str | None, str | None]


def reached(name: str, options: ArrowOptions) -> tuple[Place, Keys] | None:
    """The bucket ``name`` and the keys for it as Arrow's ``options`` have them; None where only Arrow knows how."""
    keys: Keys = (options["access_key"], options["secret_key"], options["session_token"])
    if not keys[0]:  # whoever has other keys has other memories
        keys = (os.environ.get(ACCESS), os.environ.get(SECRET), os.environ.get(TOKEN))
    if options["role_arn"] or options["proxy_options"]["host"] or options["default_metadata"]:
        return None
    if not (options["anonymous"] or all(keys[:2]) or any(map(os.environ.get, _KEYS))):
        return None
    endpoint = options["endpoint_override"]
    if endpoint and "://" not in endpoint:
        endpoint = f"{options['scheme']}://{endpoint}"
    place = Place(
        bucket=name,
        endpoint=endpoint,
        region=options["region"],
        is_virtual=bool(options["force_virtual_addressing"]) or not endpoint,
        bundle=options["tls_ca_file_path"],
        is_anonymous=bool(options["anonymous"]),
    )
    return place, keys


@lru_cache(maxsize=16)
def _opened(place: Place, keys: Keys) -> RemoteBucket:
    access, secret, token = keys
    endpoint = place.endpoint
    if endpoint and place.is_virtual:
        parts = urlsplit(endpoint)
        endpoint = parts._replace(netloc=f"{place.bucket}.{parts.netloc}").geturl()
    config: S3Config = {"virtual_hosted_style_request": place.is_virtual, "skip_signature": place.is_anonymous}
    if endpoint:
        config["endpoint"] = endpoint
    if place.region:
        config["region"] = place.region
    client: ClientConfig = {"allow_http": endpoint.startswith("http://")}
    if place.bundle:
        client["root_certificate"] = Path(place.bundle).read_bytes()

    def tell() -> S3Credential:
        return {"access_key_id": access or "", "secret_access_key": secret or "", "token": token, "expires_at": None}

    given = tell if access and secret and not place.is_anonymous else None
    store = S3Store(place.bucket, config=config, client_options=client, credential_provider=given)
    return RemoteBucket(place.bucket, store)


@cache
def _pool() -> ThreadPoolExecutor:
    """For ranges of all files."""
    return ThreadPoolExecutor(_CONCURRENT, "ranges")
