"""`python -m release images` and `python -m release publish`, as the make targets call them; the environment says what.

REGISTRY, VERSION, KEY, COSIGN and PYTHON_INDEX are those of docs/releasing.md. Exit code 1 with one sentence when
something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from release.artifacts import (
    Pushed,
    build_wheel,
    has_chart,
    make_images,
    package_chart,
    publish_wheel,
    push_chart,
    push_images,
    write_sums,
)
from release.signing import Signer
from release.versions import Registry, check_one_version, read_version
from tests.cluster.errors import ClusterError
from tests.cluster.layout import REPOSITORY

FOLDER = REPOSITORY / "build" / "release"


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("command", choices=("images", "publish"))
    chosen = parser.parse_args(arguments)
    try:
        registry, version = Registry.read(environment.get("REGISTRY", "")), read_version(environment.get("VERSION", ""))
        if chosen.command == "images":
            print("\n".join(make_images(registry, version).values()))
        else:
            publish(registry, version, environment)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def publish(registry: Registry, version: str, environment: Mapping[str, str]) -> None:
    """Build, push and sign everything. The chart comes last: who finds it finds all that it names, signed."""
    signer = Signer.find(environment.get("COSIGN") or "cosign", environment.get("KEY", ""))
    check_one_version(version)
    if has_chart(registry, version):
        raise ClusterError(
            f"{registry.charts} has the chart {version} already: a version is released once, choose another"
        )
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    wheel = build_wheel(FOLDER / "wheels")
    images = push_images(registry, make_images(registry, version))
    for image in images.values():
        signer.sign(image)
        if image.bill is not None:
            shutil.copy(image.bill, FOLDER)
    archive = package_chart(images, version, FOLDER)
    sums = FOLDER / "SHA256SUMS"
    write_sums([wheel, archive], sums)
    signer.sign_file(sums)
    if index := environment.get("PYTHON_INDEX"):
        publish_wheel(wheel, index)
    chart = push_chart(registry, archive, version)
    signer.sign(chart)
    tell([*images.values(), chart], version, FOLDER)


def tell(pushed: Sequence[Pushed], version: str, folder: Path) -> None:
    """Write and print the digests."""
    entries = [{key: str(value) for key, value in asdict(artifact).items() if key != "bill"} for artifact in pushed]
    (folder / "release.json").write_text(json.dumps({"version": version, "pushed": entries}, indent=1) + "\n")
    for artifact in pushed:
        print(artifact.tagged)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
