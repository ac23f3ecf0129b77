"""Java libraries that Spark gets besides its own: found in a cache of this machine, or fetched once from Maven.

Each is pinned by its SHA-256, and in the cache whole or not at all. Reading a bucket by Spark needs those of ``s3a``;
runs need no others. Sessions of users need ``iceberg``, and ``sqlite`` for a catalog in SQLite.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = "https://repo1.maven.org/maven2"
MIRROR_VARIABLE = "SKIPSTONE_MAVEN"
_SECONDS = 120.0
_CONNECTIONS = 8
_LIST = Path(__file__).with_name("jars.txt")


class JarsMissing(Exception):
    """Libraries are not there and cannot be fetched; the text is one sentence with a way out."""


@dataclass(frozen=True)
class Jar:
    """One library as Maven has it."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Where a repository has it."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"


@dataclass
class JarCache:
    """The libraries in ``folder``; what is not there comes from ``repository``."""

    folder: Path
    repository: str = REPOSITORY
    _fetching: dict[str, threading.Thread] = field(default_factory=dict)
    _failed: dict[str, JarsMissing] = field(default_factory=dict)

    @staticmethod
    def of_machine(host: Mapping[str, str]) -> JarCache:
        """The cache of the person whose variables ``host`` has."""
        cache = host.get("XDG_CACHE_HOME") or f"{host.get('HOME') or tempfile.gettempdir()}/.cache"
        repository = host.get(MIRROR_VARIABLE) or REPOSITORY
        return JarCache(Path(cache) / "skipstone" / "jars", repository.rstrip("/"))

    def find(self, purpose: str) -> tuple[Path, ...] | None:
        """The files of the libraries for ``purpose`` (s3a, iceberg or sqlite); None if not all of them are there."""
        files = tuple(self.folder / jar.name for jar in read_list(purpose))
        return files if all(file.is_file() for file in files) else None

    def fetch(self, purpose: str) -> tuple[Path, ...]:
        """The files of the libraries for ``purpose``, fetched if need be. Raises JarsMissing."""
        missing = [jar for jar in read_list(purpose) if not (self.folder / jar.name).is_file()]
        if missing:
            with ThreadPoolExecutor(_CONNECTIONS) as threads:
                list(threads.map(self._fetch_one, missing))
        return tuple(self.folder / jar.name for jar in read_list(purpose))

    def await_fetched(self, purpose: str) -> tuple[Path, ...] | None:
        """``fetch`` in the background: None as long as that takes. Raises JarsMissing, and fetches again when asked."""
        if (files := self.find(purpose)) is not None:
            return files
        if (failure := self._failed.pop(purpose, None)) is not None:
            raise failure
        if purpose not in self._fetching or not self._fetching[purpose].is_alive():
            thread = threading.Thread(target=self._fetch_quietly, args=(purpose,), name=f"fetch {purpose}", daemon=True)
            self._fetching[purpose] = thread
            thread.start()
        return None

    def _fetch_quietly(self, purpose: str) -> None:
        try:
            self.fetch(purpose)
        except JarsMissing as error:
            self._failed[purpose] = error

    def _fetch_one(self, jar: Jar) -> None:
        address = f"{self.repository}/{jar.path}"
        try:
            with urllib.request.urlopen(address, timeout=_SECONDS) as answer:
                content = answer.read()
            digest = hashlib.sha256(content).hexdigest()
            if digest != jar.sha256:
                raise OSError(f"its SHA-256 is {digest}, not {jar.sha256}")
            self._keep(jar, content)
        except (OSError, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            raise JarsMissing(
                f"{jar.name} cannot be fetched from {address} ({error}): connect this machine to it, name a mirror by "
                f"{MIRROR_VARIABLE}, or put the file into {self.folder}"
            ) from error

    def _keep(self, jar: Jar, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        number, unfinished = tempfile.mkstemp(dir=self.folder, prefix=f".{jar.name}.")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(content)
            Path(unfinished).replace(self.folder / jar.name)
        except OSError:
            with suppress(OSError):
                Path(unfinished).unlink()
            raise


def read_list(purpose: str) -> tuple[Jar, ...]:
    """The libraries for ``purpose``, as they are pinned."""
    words = [line.split() for line in _LIST.read_text().splitlines() if not line.startswith("#")]
    return tuple(Jar(*rest) for name, *rest in words if name == purpose)
