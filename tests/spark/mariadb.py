"""A real MariaDB on loopback for one test run: from Debian's package, installed when it is missing.

Used by the soak of Maxwell. It says that it is MySQL 5.6, whose log is the newest that Maxwell 1.22 reads.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port
from tests.spark.jars import CACHE
from tests.spark.postgres import unprivileged

PASSWORD = "correct horse"
USER = "skipstone"
SECONDS = 800
_PACKAGES = ("mariadb-server-core", "mariadb-client-core")


@dataclass(frozen=True)
class MariaDb:
    """A server on loopback with the superuser USER and PASSWORD."""

    port: int

    def run(self, sql: str, database: str = "") -> list[list[str]]:
        """Run statements in one session, and tell the rows of their answers as text; null is ``NULL``."""
        command = ["mariadb", "--no-defaults", "--host=127.0.0.1", f"--port={self.port}", f"--user={USER}"]
        command += [f"--password={PASSWORD}", "--default-character-set=utf8mb4", "--batch", "--skip-column-names"]
        done = subprocess.run(
            [*command, database], input=sql, check=True, timeout=SECONDS, stdout=subprocess.PIPE, text=True
        )
        return [line.split("\t") for line in done.stdout.splitlines()]


@contextmanager
def mariadb() -> Iterator[MariaDb]:
    """A server that writes a log of rows; it and its data end with the block."""
    _install()
    folder = Path(tempfile.mkdtemp(prefix="skipstone-mariadb-"))
    account = unprivileged()
    os.chown(folder, account.pw_uid, account.pw_gid)
    as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    server, data = MariaDb(free_port()), folder / "data"
    environment = {**os.environ, "TMPDIR": str(folder)}  # the account may not write where tests keep their files
    make: Sequence[str] = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db"]
    subprocess.run(make, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL, cwd="/", env=environment, **as_user)  # type: ignore[call-overload]
    first = folder / "first.sql"
    first.write_text(f"create user {USER}@'127.0.0.1' identified by '{PASSWORD}';\n"
                     f"grant all on *.* to {USER}@'127.0.0.1' with grant option;\n")  # fmt: skip
    first.chmod(0o644)
    options = [
        f"--datadir={data}",
        "--bind-address=127.0.0.1",
        f"--port={server.port}",
        f"--socket={folder / 'socket'}",
    ]
    options += ["--log-bin=master", "--server-id=7", "--binlog-format=ROW", "--binlog-row-image=FULL"]
    options += ["--binlog-annotate-row-events=OFF", "--version=5.6.51-MariaDB", "--old-mode=", f"--init-file={first}"]
    options += ["--character-set-server=utf8mb4", "--default-time-zone=+00:00", "--innodb-flush-log-at-trx-commit=0"]
    process = subprocess.Popen(
        ["/usr/sbin/mariadbd", "--no-defaults", *options],
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env=environment,
        **as_user,
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "ready for connections" in line:
                break
        else:
            raise RuntimeError("".join(said))
        yield server
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(folder)


def _install() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "mariadb.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.which("mariadb-install-db") is None:
            subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *_PACKAGES], check=True)
