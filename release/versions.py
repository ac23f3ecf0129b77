"""Which version is released, and where to. Pure rules over what a person gave; a wrong value is one sentence."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import REPOSITORY

CHART = REPOSITORY / "charts" / "skipstone"
#: Folders of the distribution, which is built of the whole, and of its packages.
MEMBERS = (".", "core", "operator", "report", "spark_apps", "cli", "local")
#: The image of each part, as the chart's value below `image` names it.
IMAGES = {"operator": "skipstone-operator", "spark": "skipstone-spark"}
#: Semantic versioning without build metadata, which a tag of an image cannot have.
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
REGISTRY = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+)(:\d+)?(/.*)?")


@dataclass(frozen=True)
class Registry:
    """A registry and maybe a path in it, such as registry.example.com/team."""

    place: str

    @staticmethod
    def read(place: str) -> Registry:
        """The registry that a person named. Raises ClusterError."""
        if not place:
            raise ClusterError("REGISTRY is not set: name the registry, for example REGISTRY=registry.example.com/team")
        if not REGISTRY.fullmatch(place) or "." not in place.partition("/")[0] + "." * place.startswith("localhost"):
            raise ClusterError(
                f"REGISTRY={place} names no registry: give host, port and path alone, "
                "for example REGISTRY=registry.example.com/team"
            )
        return Registry(place)

    @property
    def is_plain(self) -> bool:
        """Whether it is spoken to without TLS: on this machine only."""
        return LOOPBACK.fullmatch(self.place) is not None

    def image(self, part: str, version: str) -> str:
        """The name of the image of a part (a key of IMAGES)."""
        return f"{self.place}/{IMAGES[part]}:{version}"

    @property
    def charts(self) -> str:
        """What `helm push` takes."""
        return f"oci://{self.place}/charts"


def read_version(given: str) -> str:
    """The version to release: what a person gave, else that of the chart. Raises ClusterError."""
    version = given or chart_version()
    if not VERSION.fullmatch(version):
        raise ClusterError(f"VERSION={version} is no version: give one such as 0.2.0 or 0.2.0-rc.1")
    return version


def chart_version() -> str:
    """The version in Chart.yaml."""
    match = re.search(r"^version: (\S+)$", (CHART / "Chart.yaml").read_text(), re.MULTILINE)
    if match is None:
        raise ClusterError(f"{CHART / 'Chart.yaml'} has no version: restore the file from git")
    return match[1]


def wheel_versions() -> dict[str, str]:
    """The version of the distribution and of each Python package in it, by its folder."""
    return {
        member: str(tomllib.loads((REPOSITORY / member / "pyproject.toml").read_text())["project"]["version"])
        for member in MEMBERS
    }


def check_one_version(version: str) -> None:
    """Raise ClusterError when the wheels would be of another version than images and chart."""
    other = next(((member, wheel) for member, wheel in wheel_versions().items() if wheel != version), None)
    if other is not None:
        raise ClusterError(
            f"VERSION={version}, but {Path(other[0]) / 'pyproject.toml'} says {other[1]}: "
            "set the version in every pyproject.toml, in Chart.yaml and in values.yaml first"
        )
