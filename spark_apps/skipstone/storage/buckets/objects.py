"""A Warehouse in an object store, of whichever kind.

A put is whole or not at all, and ``If-None-Match`` makes the first of several count. What is read is what was listed:
every read names the ETag. Credentials stay in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from propcache.api import cached_property
from skipstone_core.contract.places import BucketRef
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.ids import OWN_DIRECTORY
from skipstone_core.reasons import Reason

from skipstone.storage.buckets.kind import Asked, kind_of
from skipstone.storage.buckets.objectfiles import TAIL_BYTES, Ends, ObjectFile, ReadAhead
from skipstone.storage.buckets.refusals import (
    code_of,
    is_about_keys,
    is_about_names,
    place_of,
    refusal,
    status_of,
)
from skipstone.storage.globs import Glob, Reached
from skipstone.storage.port import READ_AHEAD, Entry, Folder, NoFile, Replaced, is_hidden

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore, RetryConfig

RACERS = 8
#: Requests for single objects that are under way at once.
CONCURRENT = 16
#: Objects that a listing tells at once.
_PAGE = 1000
#: Puts of a first file that meet another one which is gone when they look.
_MOST_TRIES = 5
#: Status of the answer to a range behind the end of an object, and to every range of an empty one.
_BEHIND_THE_END = 416
#: Statuses of HEAD that may be about keys or clocks.
_WORDLESS = (400, 403)
#: What a first put gives that the store has taken.
_FIRST = object()
_T = TypeVar("_T")
_tails = Ends(16 * 1024 * 1024)


@dataclass(frozen=True)
class Part:
    """Some bytes of an object, the ``size`` of it all, and its ``version``."""

    content: bytes
    size: int
    version: str | None


@dataclass(frozen=True)
class ObjectStorage:
    """The objects of ``ref``. ``retries``: obstore's when None."""

    ref: BucketRef
    retries: RetryConfig | None = field(default=None, compare=False, repr=False)

    def where(self, path: str = "") -> str:
        """The address with the endpoint."""
        return place_of(self.ref, path)

    def address(self, path: str = "") -> str:
        """A URL of Hadoop's file system for this kind."""
        place = self.ref.location(path).removeprefix(self.ref.SCHEME)
        return f"{kind_of(self.ref).hadoop_scheme}{place}"

    def hadoop_settings(self) -> Mapping[str, str]:
        """Of that file system, for this bucket alone."""
        return kind_of(self.ref).hadoop_settings(self.ref)

    def may_hold(self, path: str) -> bool:
        """Folders are what the names of objects say."""
        return True

    def __getstate__(self) -> dict[str, object]:
        """Without the store: it holds credentials, and another process has its own."""
        return {"ref": self.ref, "retries": self.retries}

    def is_taken(self, path: str) -> bool:
        """By a first page at most."""
        key = _key(path)
        return self._head(key) is not None or next(self.list(key), None) is not None

    def look(self, path: str) -> Entry | Folder | None:
        """The object, or the folder that objects below it make."""
        key = _key(path)
        entry = None if path.endswith("/") else self._head(key)
        return entry or self._folder(key)

    def match(self, pattern: str) -> tuple[Entry | Folder, ...]:
        """By listing those folders only in which something may fit."""
        glob = Glob(pattern)
        matches = () if is_hidden(glob.fixed) else self._matched(glob, glob.fixed, glob.begin(glob.fixed))
        return tuple(sorted(matches, key=lambda entry: PurePosixPath(entry.path)))

    def entries(self, paths: Sequence[str]) -> Iterator[Entry | None]:
        """Many at once."""
        is_proven = False
        with ThreadPoolExecutor(CONCURRENT) as pool:
            for path, entry in zip(paths, pool.map(lambda path: self._head(_key(path)), paths), strict=True):
                if entry is None and not is_proven:
                    self._folder(_key(path))  # the answer to HEAD does not tell a missing bucket from a missing object
                    is_proven = True
                    yield self._head(_key(path))  # the bucket may have been away for that moment only
                else:
                    yield entry

    def list(self, folder: str) -> Iterator[Entry]:
        """Page by page."""
        key = _key(folder)
        try:
            yield from self._listed(key)
        except (BaseError, OSError, ValueError) as error:
            raise refusal(self.ref, Asked.LIST, key, error) from None

    def _listed(self, key: str) -> Iterator[Entry]:
        """Raises what obstore raises."""
        for page in obstore.list(self._store, key or None, chunk_size=_PAGE):
            yield from (self._entry(meta) for meta in page if meta["path"] != key)

    def read(self, path: str) -> bytes:
        """The whole content."""
        key = _key(path)
        return self._asked(Asked.READ, key, lambda: bytes(obstore.get(self._store, key).bytes()))

    def open(self, what: Entry | str, *, buffering: int = READ_AHEAD) -> BinaryIO:
        """Asks for nothing before the first read."""
        if isinstance(what, Entry):
            content = _Content(self, what.path, what.size, str(what.version))
        else:
            content = _Content(self, _key(what))
        file = ObjectFile(content)
        return cast(BinaryIO, ReadAhead(file, buffering) if buffering else file)

    def create(self, path: str, content: bytes) -> bytes:
        """By a conditional put. Unless it is taken, what is there is read: one that seems to fail may be done."""
        key = _key(path)
        for _ in range(_MOST_TRIES):
            lost = self._put_first(key, content)
            if lost is _FIRST:
                return content
            with suppress(FileNotFoundError):
                return self.read(path)
            if isinstance(lost, DependencyUnavailable):
                raise lost
        raise self._broken(f"'{path}' is there and not there: somebody deletes it while it is written")

    def keep_content(self, path: str, content: bytes) -> None:
        """By a put."""
        key = _key(path)
        self._asked(Asked.WRITE, key, lambda: self._put(key, content, first=False))

    def keep_copy(self, path: str, source: Path) -> None:
        """In parts when it is large; what a broken put has sent is taken back."""
        key = _key(path)
        self._asked(Asked.WRITE, key, lambda: obstore.put(self._store, key, source))

    def move(self, path: str, to: str) -> None:
        """By a copy that the store makes."""
        key = _key(path)
        self._asked(Asked.READ, key, lambda: obstore.copy(self._store, key, _key(to)))
        self.delete(path)

    def delete(self, path: str) -> None:
        """One object."""
        key = _key(path)
        with suppress(FileNotFoundError):
            self._asked(Asked.DELETE, key, lambda: obstore.delete(self._store, key))

    def delete_folder(self, folder: str) -> None:
        """One object after the other: a folder is a part of their names."""
        for entry in list(self.list(folder)):
            self.delete(entry.path)

    def probe(self, name: str) -> None:
        """Raises DependencyUnavailable for what the endpoint does not honor."""
        path = f"{OWN_DIRECTORY}/{name}/first"
        self.delete(path)
        offers = [f"skipstone {number}".encode() for number in range(RACERS)]
        with ThreadPoolExecutor(RACERS) as pool:
            contents = set(pool.map(lambda offer: self.create(path, offer), offers))
        if len(contents) != 1 or not contents <= set(offers):
            raise self._broken("of several first puts (If-None-Match: *) more than one won")
        self._probe_reads(path, *contents)
        self.delete(path)
        if self._head(path) is not None:
            raise self._broken("an object that was deleted is still there")

    def _probe_reads(self, path: str, content: bytes) -> None:
        entry = self._head(path)
        if entry is None or list(self.list(str(PurePosixPath(path).parent))) != [entry]:
            raise self._broken("an object that was just put is not listed, or with another ETag")
        if self.get_range(path, (0, entry.size), str(entry.version)).content != content:
            raise self._broken("an object that was just put reads differently")
        try:
            self.get_range(path, (0, 1), '"00000000000000000000000000000000"')
        except Replaced:
            return
        raise self._broken("a read of another ETag (If-Match) is not refused")

    def probe_reading(self) -> None:
        """A first page, and a byte of the first object there that has some: an empty one may stand for a folder."""
        try:
            for entry in islice(self._listed(""), _PAGE):
                with suppress(Replaced):  # people may change what is theirs meanwhile
                    if entry.size and self.get_range(entry.path, (0, 1), str(entry.version)):
                        break
        except (BaseError, OSError, ValueError) as error:
            if not is_about_names(error):  # such an object keeps nobody from reading others
                raise refusal(self.ref, Asked.LIST, "", error) from None

    @cached_property
    def _store(self) -> ObjectStore:
        return kind_of(self.ref).store(self.ref, self.retries)

    def _matched(self, glob: Glob, folder: str, reached: Reached) -> Iterator[Entry | Folder]:
        """What fits at ``folder``, which has come to ``reached``, and below it."""
        if not reached:
            return
        here = self._folder(folder)
        if here is None:
            return
        if glob.fits(reached):
            yield here
        if glob.goes_on(reached):
            if not glob.only_folders:
                names = ((file, glob.step(reached, PurePosixPath(file.path).name)) for file in here.files)
                yield from (file for file, after in names if glob.fits(after))
            for name in here.folders:
                yield from self._matched(glob, f"{folder}/{name}".lstrip("/"), glob.step(reached, name))

    def _folder(self, key: str) -> Folder | None:
        listed = self._asked(Asked.LIST, key, lambda: obstore.list_with_delimiter(self._store, key or None))
        files = [self._entry(meta) for meta in listed["objects"] if meta["path"] != key]
        folders = [PurePosixPath(prefix).name for prefix in listed["common_prefixes"]]
        if not (files or folders or listed["objects"]):
            return None
        return Folder(
            path=key,
            files=tuple(sorted(file for file in files if not is_hidden(PurePosixPath(file.path).name))),
            folders=tuple(sorted(name for name in folders if not is_hidden(name))),
        )

    def _head(self, key: str) -> Entry | None:
        try:
            return self._entry(self._asked(Asked.LOOK, key, lambda: self._looked_at(key)))
        except FileNotFoundError:
            return None

    def _entry(self, meta: ObjectMeta) -> Entry:
        if not meta["e_tag"]:
            raise self._broken(f"'{meta['path']}' has no ETag")
        return Entry(
            path=meta["path"],
            size=meta["size"],
            version=meta["e_tag"],
            touched_ns=int(meta["last_modified"].timestamp()) * 1_000_000_000,
        )

    def find_size(self, key: str, version: str | None) -> tuple[int, str]:
        """Size and version of an object. Raises FileNotFoundError; for a ``version`` that is gone Replaced."""
        entry = self._head(key)
        if version is not None and (entry is None or entry.version != version):
            raise Replaced(key)
        if entry is None:
            raise FileNotFoundError(f"{self.where(key)} is not there")
        return entry.size, str(entry.version)

    def get_range(self, key: str, place: tuple[int, int], version: str | None) -> Part:
        """Bytes of an object. Raises FileNotFoundError; for a ``version`` that is gone Replaced."""
        wanted: GetOptions = {"range": place}
        if version is not None:
            wanted["if_match"] = version

        def get() -> Part:
            try:
                result = obstore.get(self._store, key, options=wanted)
            except BaseError as error:
                if status_of(error) != _BEHIND_THE_END:
                    raise
                return Part(b"", *self.find_size(key, version))
            return Part(bytes(result.bytes()), result.meta["size"], result.meta["e_tag"] or version)

        try:
            return self._asked(Asked.READ, key, get)
        except PreconditionError:
            raise Replaced(key) from None
        except FileNotFoundError:
            if version is None:
                raise
            raise Replaced(key) from None

    def _put_first(self, key: str, content: bytes) -> DependencyUnavailable | object | None:
        """_FIRST when the object is ours, None when one is there, else the error. Raises it when it was refused."""
        try:
            self._put(key, content, first=True)
        except AlreadyExistsError:
            return None
        except (BaseError, OSError) as error:
            refused = refusal(self.ref, Asked.WRITE, key, error)
            if 400 <= status_of(error) < 500:
                raise refused from None
            return refused
        return _FIRST

    def _put(self, key: str, content: bytes, *, first: bool) -> None:
        obstore.put(self._store, key, content, mode="create" if first else "overwrite", use_multipart=False)

    def _asked(self, asked: Asked, key: str, ask: Callable[[], _T]) -> _T:
        """The answer. Raises FileNotFoundError when the object, and not the bucket, is missing.

        What a condition refuses to read is raised as it is: PreconditionError.
        """
        try:
            return ask()
        except Replaced:
            raise
        except FileNotFoundError as error:
            if code_of(error) == "NoSuchBucket" or asked in (Asked.LIST, Asked.WRITE):
                raise refusal(self.ref, asked, key, error) from None
            raise FileNotFoundError(f"{self.where(key)} is not there") from None
        except (BaseError, OSError, ValueError) as error:
            if asked is Asked.READ and isinstance(error, PreconditionError):
                raise
            raise refusal(self.ref, asked, key, error) from None

    def _looked_at(self, key: str) -> ObjectMeta:
        """By HEAD, whose refusals have no words: a read tells what is wrong, or that nothing is any more."""
        try:
            return obstore.head(self._store, key)
        except (BaseError, OSError) as error:
            if status_of(error) not in _WORDLESS:
                raise
            try:
                obstore.get_range(self._store, key, start=0, end=1)
            except (BaseError, OSError) as reason:
                if not isinstance(reason, FileNotFoundError) and status_of(reason) != _BEHIND_THE_END:
                    raise (reason if is_about_keys(self.ref, reason) else error) from None
        return obstore.head(self._store, key)

    def _broken(self, what: str) -> DependencyUnavailable:
        return DependencyUnavailable(
            Reason.STORAGE_UNAVAILABLE,
            f"{self.where()} cannot be used: {what}; choose {kind_of(self.ref).words.endpoint} that honors conditional "
            "puts and reads",
        )


@dataclass
class _Content:
    """One object for ``ObjectFile``: the version that is asked for, or the one of the first answer."""

    storage: ObjectStorage
    key: str
    known_size: int | None = None
    version: str | None = None

    def size(self) -> int:
        """By a request when nothing was read yet."""
        if self.known_size is None:
            self.known_size, self.version = self.storage.find_size(self.key, self.version)
        return self.known_size

    def fetch(self, start: int, end: int) -> bytes:
        """By a request; the end of a version, where most footers are and small files whole, by one for all openings."""
        if self.known_size is not None and self.version is not None and self.known_size - start <= TAIL_BYTES:
            place = max(0, self.known_size - TAIL_BYTES)
            tail = _tails.get((self.storage, self.key, self.version), lambda: self._get(place, self.known_size or 0))
            return tail[start - place : end - place]
        return self._get(start, end)

    def _get(self, start: int, end: int) -> bytes:
        part = self.storage.get_range(self.key, (start, end), self.version)
        self.known_size, self.version = part.size, part.version
        return part.content


def _key(path: str) -> str:
    """``path`` as objects are named. Raises NoFile for one that no object can have."""
    parts = PurePosixPath(path).parts
    if ".." in parts or any(ord(character) < 32 for character in path):
        raise NoFile(path)
    return "/".join(part for part in parts if part != "/")
