"""Makes what is released, and hands it to a registry: images by buildah, the chart by Helm, the wheel by uv."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from release.versions import CHART, IMAGES, Registry
from tests.cluster.bills import FOLDER as BILLS
from tests.cluster.bills import write_bills
from tests.cluster.errors import ClusterError
from tests.cluster.image_build import build_images, buildah
from tests.cluster.layout import CACHE, REPOSITORY
from tests.cluster.shell import Words, run, run_logged, stage
from tests.cluster.toolchain import build_tools

UV = REPOSITORY / ".cache" / "uv" / "bin" / "uv"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LOG = CACHE / "log" / "release.log"


@dataclass(frozen=True)
class Pushed:
    """Something in a registry: its name without a tag, its version, its digest, and its bill of materials if any."""

    name: str
    version: str
    digest: str
    bill: Path | None = None

    @property
    def exact(self) -> str:
        """The name by which nothing else can ever be meant."""
        return f"{self.name}@{self.digest}"

    @property
    def tagged(self) -> str:
        """The exact name, with the version for people."""
        return f"{self.name}:{self.version}@{self.digest}"


def make_images(registry: Registry, version: str) -> dict[str, str]:
    """Build the images and give them their names in the registry; those names by part. Nothing is pushed."""
    built = build_images(tuple(IMAGES.values()))
    write_bills(built)
    names = {part: registry.image(part, version) for part in IMAGES}
    for part, name in names.items():
        run(buildah("tag", built[IMAGES[part]], name))
    return names


def push_images(registry: Registry, names: Mapping[str, str]) -> dict[str, Pushed]:
    """Push named images; by part."""
    return {part: _push_image(registry, part, name) for part, name in names.items()}


def _push_image(registry: Registry, part: str, name: str) -> Pushed:
    with stage(f"push {name}"), tempfile.TemporaryDirectory() as folder:
        digest = Path(folder) / "digest"
        security = f"--tls-verify={'false' if registry.is_plain else 'true'}"
        run_logged(buildah("push", security, "--digestfile", digest, name, f"docker://{name}"), LOG)
        place, _, version = name.rpartition(":")
        return Pushed(place, version, digest.read_text().strip(), BILLS / f"{IMAGES[part]}.image.cdx.json")


def has_chart(registry: Registry, version: str) -> bool:
    """Whether the registry holds the chart of this version, which is pushed after everything else.

    Raises ClusterError when it does not tell: a version that is there already must not be taken for a new one.
    """
    try:
        run([_helm(), "show", "chart", f"{registry.charts}/skipstone", "--version", version, *_plain(registry)])
    except ClusterError as error:
        if str(error).endswith(": not found"):
            return False
        message = f"{registry.charts} does not tell of the chart {version}: check REGISTRY, or log in; {error}"
        raise ClusterError(message) from error
    return True


def package_chart(images: Mapping[str, Pushed], version: str, folder: Path) -> Path:
    """The chart's archive in ``folder``. It names the images by their digests."""
    with tempfile.TemporaryDirectory() as parent:
        copy = Path(parent) / CHART.name
        shutil.copytree(CHART, copy)
        values = copy / "values.yaml"
        text = values.read_text()
        for part, image in images.items():
            text, count = re.subn(rf"^  {part}: {IMAGES[part]}:\S+$", f"  {part}: {image.tagged}", text, flags=re.M)
            if count != 1:
                raise ClusterError(f"{CHART / 'values.yaml'} does not name image.{part} once: restore it from git")
        values.write_text(text)
        run([_helm(), "package", copy, "--version", version, "--app-version", version, "--destination", folder])
    return folder / f"{CHART.name}-{version}.tgz"


def push_chart(registry: Registry, archive: Path, version: str) -> Pushed:
    """Push the chart's archive."""
    with stage(f"push {registry.charts}/{CHART.name}"):
        command = shlex.join(map(str, [_helm(), "push", archive, registry.charts, *_plain(registry)]))
        # Helm says the digest on standard error.
        output = run(["sh", "-c", f"{command} 2>&1"])
    digest = DIGEST.search(output)
    if digest is None:
        raise ClusterError(f"helm push told no digest: {output.strip()}")
    return Pushed(f"{registry.charts.removeprefix('oci://')}/{CHART.name}", version, digest[0])


def build_wheel(folder: Path) -> Path:
    """The wheel with all packages, in ``folder``."""
    with stage("build the wheel"):
        run_logged([UV, "build", "--wheel", "--quiet", "--out-dir", folder, REPOSITORY], LOG, cwd=REPOSITORY)
    (wheel,) = folder.glob("*.whl")
    return wheel


def publish_wheel(wheel: Path, index: str) -> None:
    """Upload the wheel to a Python index; uv takes the credentials from UV_PUBLISH_TOKEN or its like."""
    with stage(f"publish {wheel.name}"):
        run_logged([UV, "publish", "--publish-url", index, wheel], LOG)


def write_sums(files: list[Path], target: Path) -> None:
    """Write the SHA-256 of each file, as `sha256sum --check` reads it in the folder of ``target``."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(target.parent)}" for file in files]
    target.write_text("".join(f"{line}\n" for line in lines))


def _helm() -> Path:
    return build_tools(["helm"])["helm"]


def _plain(registry: Registry) -> Words:
    return ["--plain-http"] if registry.is_plain else []
