"""Writes what is pinned for the images as CycloneDX: Python distributions, PySpark's jars and the Iceberg runtime.

Called by ``make sbom``, which needs no image. What a built image holds, Debian's packages included, is written when it
is built (``tests/cluster/bills.py``).
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyspark

REPOSITORY = Path(__file__).resolve().parents[1]
UV = REPOSITORY / ".cache" / "uv" / "bin" / "uv"
#: Package of the workspace by image.
IMAGES = {"skipstone-operator": "skipstone-operator", "skipstone-spark": "skipstone-spark"}
DOCKERFILE = REPOSITORY / "spark_apps" / "Dockerfile"
S3A = DOCKERFILE.parent / "image" / "s3a.xml"
ICEBERG = re.compile(r"^ARG ICEBERG_VERSION=(.+)$", re.MULTILINE)
RUNTIME = re.compile(r"org\.apache\.iceberg (iceberg-spark-runtime-\S+)")
JAR = re.compile(r"(?P<name>.+)-(?P<version>[0-9][^/]*)\.jar")


def main(folder: Path) -> None:
    """Write one file for each image into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for image, package in IMAGES.items():
        bill = export(package)
        if image == "skipstone-spark":
            bill["components"] += [*jars(Path(pyspark.__file__).parent / "jars"), iceberg(DOCKERFILE.read_text())]
            bill["components"] += s3a(S3A)
        (folder / f"{image}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")


def export(package: str) -> dict[str, Any]:
    """The distributions that the lock gives a package, as uv writes them."""
    options = ["--frozen", "--no-dev", "--quiet", "--package", package, "--format", "cyclonedx1.5"]
    exported = subprocess.run([UV, "export", *options], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(exported.stdout)
    return document


def jars(folder: Path) -> list[dict[str, Any]]:
    """A component for each jar, with the digest by which scanners know it."""
    return [component(path) for path in sorted(folder.glob("*.jar"))]


def component(path: Path) -> dict[str, Any]:
    """One jar; its name and version as far as the file's name tells."""
    named = JAR.fullmatch(path.name)
    name, version = (named["name"], named["version"]) if named else (path.stem, "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "library",
        "bom-ref": f"jar:{path.name}",
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def s3a(pins: Path) -> list[dict[str, Any]]:
    """What Spark reads S3 with, as the list of pins names it."""
    pinned = [element.attrib for element in ElementTree.parse(pins).iter("dependency")]
    return [maven(jar["org"], jar["name"], jar["rev"]) for jar in pinned]


def maven(group: str, name: str, version: str) -> dict[str, Any]:
    """A component that is known by its coordinates alone."""
    purl = f"pkg:maven/{group}/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def iceberg(dockerfile: str) -> dict[str, Any]:
    """The Iceberg runtime as the Dockerfile names it."""
    named, version = RUNTIME.search(dockerfile), ICEBERG.search(dockerfile)
    if named is None or version is None:
        raise SystemExit(f"{DOCKERFILE} does not say which Iceberg runtime it fetches: correct scripts/sbom.py")
    return maven("org.apache.iceberg", named[1], version[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
