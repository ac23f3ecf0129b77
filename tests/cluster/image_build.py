"""Build the project's images from their Dockerfiles and hand them to containerd, without a registry.

Called by the command line. buildah keeps its layers per user, so that checkouts share them; an image is tagged with a
digest of everything that goes into it, and is built only when no image has that tag. Inside the cluster every image is
called localhost/<name>:dev.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import CACHE, REPOSITORY, find_shared_cache
from tests.cluster.prerequisites import IMAGE_PACKAGES, NODE_GIB, check_disk, check_root, install_packages
from tests.cluster.shell import Words, run, run_logged, stage, succeeds
from tests.cluster.toolchain import build_tools

SUITE = "bookworm"
BASE = f"localhost/debian:{SUITE}-slim"
STORAGE = find_shared_cache() / "images"
LOG = CACHE / "log" / "images.log"
HOST_CA = Path("/etc/ssl/certs/ca-certificates.crt")
HOST_JAVA_CA = Path("/etc/ssl/certs/java/cacerts")
MEMBERS = ("core", "operator", "report", "spark_apps", "cli", "local")
MANIFESTS = ("pyproject.toml", "uv.lock", *(f"{member}/pyproject.toml" for member in MEMBERS))


@dataclass(frozen=True)
class Image:
    """One image: its name, its Dockerfile, and the paths below the repository and the programs it is built from."""

    name: str
    dockerfile: str
    inputs: tuple[str, ...] = ()
    parent: str | None = None
    programs: tuple[str, ...] = ()


IMAGES = (
    Image("skipstone-pause", "tests/cluster/images/pause.Dockerfile", programs=("pause",)),
    Image(
        "skipstone-operator",
        "operator/Dockerfile",
        (*MANIFESTS, "core/skipstone_core", "report/skipstone_report", "operator/skipstone_operator"),
    ),
    Image("skipstone-spark", "spark_apps/Dockerfile", (*MANIFESTS, "core/skipstone_core", "spark_apps")),
    Image(
        "skipstone-demo",
        "tests/cluster/images/demo.Dockerfile",
        (*MANIFESTS, "demo", "tests/cluster/images/demo.xml"),
        "skipstone-spark",
    ),
)
#: A bucket and a REST catalog for those who want object storage.
S3_IMAGES = (
    Image("skipstone-versitygw", "tests/cluster/images/versitygw.Dockerfile", programs=("versitygw",)),
    Image("skipstone-nessie", "tests/cluster/images/nessie.Dockerfile", ("tests/cluster/images/nessie",)),
)


def build_images(names: Collection[str] = (), *, s3: bool = False) -> dict[str, str]:
    """Return the tag of each image by its name, building those whose inputs changed; those of `s3` only if asked.

    With `names` only these, none of which may have a parent.
    """
    check_root()
    install_packages(IMAGE_PACKAGES, CACHE / "log" / "apt.log")
    images = [one for one in (*IMAGES, *(S3_IMAGES if s3 else ())) if not names or one.name in names]
    programs = build_tools([name for image in images for name in image.programs])
    with _only_builder():
        _build_base()
        tags: dict[str, str] = {}
        for image in images:
            tags[image.name] = _build(image, tags, programs)
        return tags


@contextmanager
def _only_builder() -> Iterator[None]:
    """Keep the storage from other checkouts' builds, and leave no container and no mount of it behind."""
    STORAGE.mkdir(parents=True, exist_ok=True)
    with (STORAGE.parent / ".images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            succeeds(buildah("rm", "--all"))
            release_storage()


def release_storage() -> None:
    """Undo the mounts that buildah leaves on its storage."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1] for line in lines]
    for point in reversed([point for point in points if point.startswith(f"{STORAGE}/")]):
        succeeds(["umount", point])


def buildah(*arguments: str | Path) -> Words:
    """Return a buildah command on the project's own storage."""
    return ["buildah", "--root", STORAGE, "--runroot", STORAGE.with_name("images-run"), *arguments]


def _build(image: Image, tags: dict[str, str], programs: Mapping[str, Path]) -> str:
    context = _stage_context(image, programs)
    parent = tags[image.parent] if image.parent else BASE
    tag = f"localhost/{image.name}:{_digest(image, context, parent)}"
    if _exists(tag):
        return tag
    check_disk(STORAGE, NODE_GIB)
    options = ["--layers", "--pull=never", "--isolation=chroot", "--format=oci", *_host_options()]
    if image.parent:
        options.append(f"--build-arg=SPARK_IMAGE={parent}")
    with stage(f"build image {image.name}"):
        run_logged(buildah("build", *options, "--file", REPOSITORY / image.dockerfile, "--tag", tag, context), LOG)
    return tag


def _host_options() -> list[str]:
    """Return what lets a build on this machine use the machine's own package cache and certificates."""
    options = ["--build-arg=UV_CACHE_DIR=/var/cache/uv", f"--volume={_uv_cache()}:/var/cache/uv"]
    if HOST_CA.exists():
        bundle = "/run/host/ca.crt"
        options += [
            f"--volume={HOST_CA}:{bundle}:ro",
            f"--build-arg=SSL_CERT_FILE={bundle}",
            f"--build-arg=PIP_CERT={bundle}",
        ]
    if HOST_JAVA_CA.exists():
        store = "/run/host/cacerts"
        options += [f"--volume={HOST_JAVA_CA}:{store}:ro"]
        options += [f"--build-arg=JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore={store}"]
    return options


def _exists(tag: str) -> bool:
    return succeeds(buildah("inspect", "--type", "image", tag))


def _uv_cache() -> Path:
    cache = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache" / "uv")
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _stage_context(image: Image, programs: Mapping[str, Path]) -> Path:
    """Copy the inputs of `image` to a folder of their own, with equal times, so that equal inputs hit the cache."""
    context = CACHE / "context" / image.name
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    for name in image.programs:
        shutil.copy(programs[name], context / name)
    for path in _list_files(image.inputs):
        target = context / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for path in [context, *context.rglob("*")]:
        os.utime(path, (0, 0))
    return context


def _list_files(inputs: Iterable[str]) -> list[Path]:
    roots = [REPOSITORY / name for name in inputs]
    missing = [str(root) for root in roots if not root.exists()]
    if missing:
        raise ClusterError(f"{missing[0]} is missing, an image is built from it: restore it from git")
    found = {path for root in roots for path in ([root] if root.is_file() else root.rglob("*"))}
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def _digest(image: Image, context: Path, parent: str) -> str:
    digest = hashlib.sha256(parent.encode() + (REPOSITORY / image.dockerfile).read_bytes())
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(context)} {path.stat().st_mode} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _build_base() -> None:
    """Make the Debian image that the Dockerfiles start from, with the mirrors that this machine's apt uses."""
    if _exists(BASE):
        return
    check_disk(STORAGE, NODE_GIB)
    root = CACHE / "base"
    shutil.rmtree(root, ignore_errors=True)
    mirrors = _read_mirrors()
    with stage(f"make the base image of Debian {SUITE} (about 1 min)"):
        run_logged(["debootstrap", "--variant=minbase", SUITE, root, mirrors[0].split()[0]], LOG)
        (root / "etc/apt/sources.list").write_text("".join(f"deb {mirror}\n" for mirror in mirrors))
        run(["chroot", root, "apt-get", "clean"])
        shutil.rmtree(root / "var/lib/apt/lists")
        _commit_base(root)
    shutil.rmtree(root)


def _commit_base(root: Path) -> None:
    container = run(buildah("from", "scratch")).strip()
    run(buildah("copy", "--quiet", container, f"{root}/", "/"))
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    run(buildah("config", "--env", path, "--cmd", "bash", container))
    run(buildah("commit", "--quiet", "--rm", container, BASE))


def _read_mirrors() -> list[str]:
    """Return 'address suite component' of each source of the suite that apt knows here, the main one first."""
    layout = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = run(["apt-get", "indextargets", "--format", layout, "Created-By: Packages"]).splitlines()
    fitting = [line for line in dict.fromkeys(listed) if line.split()[1].startswith(SUITE)]
    fitting.sort(key=lambda line: line.split()[1] != SUITE)
    if not fitting or fitting[0].split()[1] != SUITE:
        raise ClusterError(f"apt knows no mirror of Debian {SUITE}: add one to apt's sources and run 'apt-get update'")
    return fitting
