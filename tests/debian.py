"""Programs out of Debian packages, unpacked beside the machine's own: nothing is installed, no service starts."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from tests.cluster.layout import find_shared_cache

SECONDS = 800


def unpack_package(name: str) -> Path:
    """The root of the unpacked package ``name``, in the version that apt chooses; kept for all checkouts of this user.

    apt checks what it downloads by the signatures of Debian. Raises RuntimeError where there is no apt.
    """
    folder = find_shared_cache() / "debian"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name
    with (folder / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            if shutil.which("apt-get") is None:
                raise RuntimeError(f"apt-get is not there to download the package {name}: use Debian 12")
            _unpack(name, folder / f".{name}.partial", target)
    return target


def _unpack(name: str, half: Path, target: Path) -> None:
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    download = ["apt-get", "download", name]
    if subprocess.run(download, cwd=half, check=False, timeout=SECONDS, capture_output=True).returncode:
        # A fresh machine has no package list, and an old list names versions that the mirror no longer has.
        subprocess.run(["apt-get", "update"], check=True, timeout=SECONDS, capture_output=True)
        subprocess.run(download, cwd=half, check=True, timeout=SECONDS, capture_output=True)
    (package,) = half.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, half / "root"], check=True, timeout=SECONDS)
    (half / "root").replace(target)
    shutil.rmtree(half)
