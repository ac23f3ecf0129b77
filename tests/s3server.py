"""A real S3 server on loopback for one test run: versitygw, with its buckets as folders of a temporary directory.

The fixtures are in ``tests/conftest.py``. The server chooses its port itself; which one it is, the kernel tells.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path

from tests.cluster.layout import StateDir
from tests.cluster.processes import Program, find_pid, read_log_end, start_program, stop_program
from tests.cluster.shell import wait_until
from tests.cluster.toolchain import build_tools
from tests.ports import listening_ports
from tests.s3client import Keys

OWNER = Keys("skipstone-tests", "owner/secret+of=tests")
#: Somebody whom no bucket lets in, unless its policy says so.
STRANGER = Keys("skipstone-stranger", "stranger/secret+of=tests")
#: Those that a catalog of the tests vends one after the other; the owner's equals.
VENDED = tuple(Keys(f"canary-vended-{number}", f"canary-vended/secret+of={number}") for number in range(200))
REGION = "eu-central-1"
NAME = "versitygw"
START_SECONDS = 300
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class S3Server:
    """A server at ``endpoint``; ``buckets``: the folder whose folders are its buckets; ``metadata``: beside them."""

    endpoint: str
    buckets: Path
    metadata: Path

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket that belongs to OWNER."""
        (self.buckets / name).mkdir()

    def lay(self, bucket: str, folder: str, names: Iterable[str], content: bytes = b"x") -> None:
        """Put many objects below a new ``folder`` without asking the server for each."""
        tag = f'"{md5(content, usedforsecurity=False).hexdigest()}"'
        (self.buckets / bucket / folder).mkdir(parents=True)
        for name in names:
            (self.buckets / bucket / folder / name).write_bytes(content)
            about = self.metadata / bucket / folder / name / "meta"
            about.mkdir(parents=True)
            (about / "etag").write_text(tag)


@contextmanager
def s3_server(folder: Path, identity: tuple[Path, Path] | None = None, *, host: str = LOOPBACK) -> Iterator[S3Server]:
    """A server that keeps all its files below ``folder``; it ends with the block, and with this process.

    ``identity``: its certificate and key, by which it speaks TLS. ``host``: the address at which it listens.
    """
    state = StateDir(folder)
    buckets, metadata, people = (folder / name for name in ("buckets", "metadata", "people"))
    for made in (buckets, metadata, people):
        made.mkdir(parents=True)
    roles = {STRANGER: "user", **dict.fromkeys(VENDED, "admin")}
    accounts = {
        keys.access: {"access": keys.access, "secret": keys.secret, "role": role} for keys, role in roles.items()
    }
    (people / "users.json").write_text(json.dumps({"accessAccounts": accounts}))
    program = build_tools([NAME])[NAME]
    options: list[str | Path] = ["--port", f"{host}:0", "--region", REGION, "--iam-dir", people, "--quiet"]
    options += ["--access", OWNER.access, "--secret", OWNER.secret]
    if identity is not None:
        options += ["--cert", identity[0], "--key", identity[1]]
    # Metadata beside the objects: not every file system of temporary files has extended attributes
    command = [program, *options, "posix", "--sidecar", metadata, buckets]
    try:
        start_program(state, Program(NAME, command), die_with_parent=True)
        address = f"https://localhost:{_port(state)}" if identity else f"http://{host}:{_port(state)}"
        yield S3Server(address, buckets, metadata)
    finally:
        stop_program(state, NAME)


def _port(state: StateDir) -> int:
    """The port on which the server listens."""
    found: list[int] = []

    def look() -> bool:
        pid = find_pid(state, NAME)
        if pid is None:
            raise RuntimeError(f"{NAME} did not start: {read_log_end(state, NAME)}")
        found[:] = listening_ports(pid)
        return bool(found)

    wait_until(look, seconds=START_SECONDS, failure=f"{NAME} does not listen: {state.logs / NAME}.log")
    return found[0]
