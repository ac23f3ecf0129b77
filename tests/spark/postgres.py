"""A real PostgreSQL on loopback for one test run: from Debian's package, installed when it is missing."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port
from tests.spark.jars import CACHE

PASSWORD = "correct horse"
USER = "skipstone"
SECONDS = 800


@dataclass(frozen=True)
class Server:
    """A server on loopback. ``certificate``: what it proves by that it is ``localhost``, its own authority."""

    port: int
    certificate: Path


@contextmanager
def postgres(host: str = "127.0.0.1", *settings: str) -> Iterator[Server]:
    """A server at ``host`` with TLS and the superuser USER and PASSWORD; it and its data end with the block.

    ``settings``: further ones, such as ``wal_level=logical``.
    """
    folder = Path(tempfile.mkdtemp(prefix="skipstone-postgres-"))
    tools, port = postgres_tools(), free_port()
    data, secret = folder / "data", folder / "password"
    secret.write_text(PASSWORD)
    account = unprivileged()
    certificate, key = make_certificate(folder)
    for path in (folder, secret, key):
        os.chown(path, account.pw_uid, account.pw_gid)
    options = f"-c listen_addresses={host} -c port={port} -c unix_socket_directories= -c fsync=off"
    options += f" -c ssl=on -c ssl_cert_file={certificate} -c ssl_key_file={key}"
    options += "".join(f" -c {setting}" for setting in settings)
    make = [tools / "initdb", "-D", data, "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}"]
    _run(account, [*make, "--encoding=UTF8", "--no-locale"])  # tests read what it says, in English
    with (data / "pg_hba.conf").open("a") as clients:
        clients.write("host all all all scram-sha-256\n")  # as initdb wrote it for loopback
    try:
        _run(account, [tools / "pg_ctl", "-D", data, "-w", "-t", SECONDS, "-l", folder / "log", "-o", options, "start"])
        yield Server(port, certificate)
    finally:
        _run(account, [tools / "pg_ctl", "-D", data, "-m", "immediate", "-t", SECONDS, "stop"])
        shutil.rmtree(folder)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate of ``localhost`` and its key."""
    certificate, key = folder / "server.crt", folder / "server.key"
    command: list[str | Path] = ["openssl", "req", "-x509", "-new", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=localhost", "-addext"]
    command += ["subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, timeout=SECONDS, capture_output=True)
    key.chmod(0o600)
    return certificate, key


def postgres_tools() -> Path:
    """The folder of the programs of PostgreSQL, which Debian's package has: it is installed when it is missing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    # Modules run beside one another need the package at the same time: one of them installs it
    with (CACHE / "postgresql.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for attempt in ("look", "install"):
            found = [Path(path) for path in (shutil.which("initdb"), *_debian_folders()) if path]
            if found:
                return found[-1].parent
            if attempt == "look":
                subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "postgresql"], check=True)
    raise RuntimeError("the package postgresql installed no initdb")


def _debian_folders() -> list[str]:
    return sorted(str(path) for path in Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def unprivileged() -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def _run(account: pwd.struct_passwd, command: list[Path | str | int]) -> None:
    words = [str(word) for word in command]
    as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run(words, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL, cwd="/", **as_user)  # type: ignore[call-overload]
