"""Write what each built image holds as CycloneDX, read from the image's own layers.

Called by the command line after `image_build`. What is listed is what is there: Debian's packages by dpkg's own
record, Python distributions by their metadata, and every jar with its digest. An image that did not change keeps its
bill.
"""

from __future__ import annotations

import email.parser
import functools
import hashlib
import json
import re
import stat
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.cluster.layers import layer_folders
from tests.cluster.layout import REPOSITORY
from tests.cluster.shell import stage

FOLDER = REPOSITORY / "build" / "sbom"
DPKG_RECORD = "var/lib/dpkg/status"
JAR = re.compile(r"(?P<name>.+)-(?P<version>[0-9][^/]*)\.jar")
#: Group of jars that do not tell it, by the beginning of their name.
GROUPS = {"iceberg-": "org.apache.iceberg", "nessie-": "org.projectnessie.nessie"}
Component = dict[str, Any]


def write_bills(tags: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Write the bill of each image (its tag by its name) into `folder`, where it is not the image's already."""
    for name, tag in tags.items():
        target = folder / f"{name}.image.cdx.json"
        if _tells_of(target, tag):
            continue
        with stage(f"list what image {name} holds"):
            folder.mkdir(parents=True, exist_ok=True)
            partial = target.with_suffix(".partial")
            partial.write_text(json.dumps(build_bill(name, tag, layer_folders(tag)), indent=1) + "\n")
            partial.replace(target)


def _tells_of(target: Path, tag: str) -> bool:
    try:
        return bool(json.loads(target.read_text())["metadata"]["component"]["bom-ref"] == tag)
    except (OSError, ValueError, KeyError):
        return False


def build_bill(name: str, tag: str, layers: Iterable[Path]) -> Component:
    """The bill of the image `tag`, whose unpacked `layers` come lowest first."""
    files = _find_files(layers)
    components = [part for path, file in sorted(files.items()) for part in _components(path, file)]
    component = {"type": "container", "bom-ref": tag, "name": name, "version": tag.rpartition(":")[2]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, tag)}",
        "version": 1,
        "metadata": {"component": component},
        "components": components,
    }


def _find_files(layers: Iterable[Path]) -> dict[str, Path]:
    """The files that tell what is installed, by their path in the image: the highest layer counts."""
    found: dict[str, Path] = {}
    for layer in layers:
        for file in layer.rglob("*"):
            path, mode = str(file.relative_to(layer)), file.lstat().st_mode
            if stat.S_ISCHR(mode):  # a whiteout: what lower layers have under this name is gone
                found = {one: where for one, where in found.items() if one != path and not one.startswith(f"{path}/")}
            elif stat.S_ISREG(mode) and _tells(path):
                found[path] = file
    return found


def _tells(path: str) -> bool:
    return path == DPKG_RECORD or path.endswith((".jar", ".dist-info/METADATA"))


def _components(path: str, file: Path) -> Iterator[Component]:
    if path == DPKG_RECORD:
        yield from _debian_packages(file.read_text())
    elif path.endswith(".jar"):
        yield {**_jar(file), "bom-ref": path}
    else:
        said = email.parser.HeaderParser().parsestr(file.read_text(errors="replace"))
        name = re.sub(r"[-_.]+", "-", said["Name"]).lower()
        yield _component(said["Name"], said["Version"], f"pkg:pypi/{name}@{_quoted(said['Version'])}", path)


def _debian_packages(record: str) -> Iterator[Component]:
    for paragraph in record.split("\n\n"):
        said = email.parser.HeaderParser().parsestr(paragraph.strip())
        if str(said["Status"]).endswith(" installed"):
            place = f"{said['Package']}@{_quoted(said['Version'])}?arch={said['Architecture']}"
            yield _component(said["Package"], said["Version"], f"pkg:deb/debian/{place}", f"{said['Package']}:{place}")


@functools.cache
def _jar(file: Path) -> Component:
    """One jar, which several images may share; its group is known when it tells of one Maven artifact of its name."""
    named = JAR.fullmatch(file.name)
    name, version = (named["name"], named["version"]) if named else (file.stem, "")
    group = _maven_group(file, name)
    purl = f"pkg:maven/{group}/{name}@{_quoted(version)}" if group else ""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {**_component(name, version, purl, file.name), "hashes": [{"alg": "SHA-256", "content": digest}]}


def _maven_group(file: Path, name: str) -> str:
    with zipfile.ZipFile(file) as jar:
        places = [one.split("/") for one in jar.namelist() if one.startswith("META-INF/maven/")]
    groups = {place[2] for place in places if len(place) == 5 and place[3] == name}
    known = next((group for start, group in GROUPS.items() if name.startswith(start)), "")
    return groups.pop() if len(groups) == 1 else known


def _component(name: str, version: str, purl: str, reference: str) -> Component:
    found = {"type": "library", "bom-ref": reference, "name": name, "version": version}
    return {**found, "purl": purl} if purl else found


def _quoted(text: str) -> str:
    return quote(text, safe="")
