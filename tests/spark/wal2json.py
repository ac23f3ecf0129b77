"""wal2json in a PostgreSQL, and pg_recvlogical, which writes what it tells of a replication slot into files.

Used by the soak of wal2json. The plug-in is unpacked out of Debian's package for the server's version.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian import unpack_package
from tests.spark.postgres import PASSWORD, USER, postgres_tools

SLOT = "skipstone"
#: As docs/guide/feeds.md says.
OPTIONS = {"format-version": "2", "include-lsn": "true", "include-pk": "true"}
SECONDS = 600


@contextmanager
def plugin_settings() -> Iterator[tuple[str, ...]]:
    """Settings of a server that loads wal2json; end the server first."""
    tools = postgres_tools()
    libraries = Path("usr/lib/postgresql") / tools.parent.name / "lib"
    with tempfile.TemporaryDirectory(prefix="skipstone-wal2json-") as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        package = unpack_package(f"postgresql-{tools.parent.name}-wal2json")
        shutil.copy(package / libraries / "wal2json.so", folder)
        yield ("wal_level=logical", f"dynamic_library_path={folder}:{Path('/') / libraries}", *_allowed(tools))


def _allowed(tools: Path) -> tuple[str, ...]:
    """Newer versions load a plug-in only if a setting names it, which older ones do not have."""
    command = [tools / "postgres", "--describe-config"]
    told = subprocess.run(command, check=True, timeout=SECONDS, capture_output=True, text=True).stdout
    name = "output_plugin_libraries"
    return (f"{name}=wal2json",) if any(line.startswith(name) for line in told.splitlines()) else ()


def plugin_version() -> str:
    """The version of Debian's package."""
    name = f"postgresql-{postgres_tools().parent.name}-wal2json"
    told = subprocess.run(["apt-cache", "show", name], check=True, timeout=SECONDS, capture_output=True, text=True)
    return next(line.partition(" ")[2] for line in told.stdout.splitlines() if line.startswith("Version:"))


class Receiver:
    """A pg_recvlogical that writes into the file ``current.json`` of ``folder``, and puts it aside when it is told."""

    def __init__(self, folder: Path, port: int) -> None:
        """Go on where the slot is, or begin it."""
        self._folder, self._port, self._files = folder, port, 0
        folder.mkdir(parents=True)
        self._receive("--create-slot", "--plugin=wal2json").wait(SECONDS)
        self._process = self._start()

    def next_file(self) -> None:
        """Put the file aside and begin another, as a user does who rotates files."""
        self._put_aside()
        self._process.send_signal(signal.SIGHUP)
        while not self._current.exists():
            assert self._process.poll() is None
            time.sleep(0.02)

    def kill(self) -> None:
        """End the process wherever it is, cut off a line that it has begun, and start another, which repeats some."""
        self._process.kill()
        self._process.wait()
        content = self._current.read_bytes()
        self._current.write_bytes(content[: content.rfind(b"\n") + 1])
        self._put_aside()
        self._process = self._start()

    def wait_for(self, text: str) -> None:
        """Put the file aside once it has ``text``, and end."""
        end = time.monotonic() + SECONDS
        while text not in (self._current.read_text() if self._current.exists() else ""):
            assert self._process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        self._process.terminate()
        self._process.wait()
        self._put_aside()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    @property
    def _current(self) -> Path:
        return self._folder / "current"

    def _put_aside(self) -> None:
        self._files += 1
        if self._current.exists():
            self._current.rename(self._folder / f"{self._files:06}.json")

    def _start(self) -> subprocess.Popen[bytes]:
        options = [f"--option={name}={value}" for name, value in OPTIONS.items()]
        return self._receive("--start", "--no-loop", f"--file={self._current}", *options)

    def _receive(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(postgres_tools() / "pg_recvlogical"), "--host=127.0.0.1", f"--port={self._port}"]
        command += [f"--username={USER}", "--dbname=postgres", f"--slot={SLOT}", *arguments]
        return subprocess.Popen(command, env={**os.environ, "PGPASSWORD": PASSWORD})
