"""The one distribution that people install: what it needs is what its packages need, sorted into extras.

Hatchling calls it when the wheel is built, and uv when it locks. The packages stay members of a workspace, so that each
image takes what one of them needs, and mypy and the rules of imports see them apart. Only Hatchling and the standard
library may be imported here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Folders of the members that work without any extra: the command line.
BASE = ("core", "report", "cli")
#: Folders of the members that an extra makes work. `cli` is there without it, and may be named all the same.
EXTRAS = {
    "cli": (),
    "spark": ("spark_apps",),
    "operator": ("operator",),
    "local": ("local", "operator", "spark_apps"),
}


class Distribution(MetadataHookInterface):
    """Fills in what `pyproject.toml` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set dependencies, extras and commands from the members' own `pyproject.toml`."""
        metadata.update(read_metadata(Path(self.root)))


def read_metadata(root: Path) -> dict[str, Any]:
    """Dependencies, extras and commands of the distribution of a checkout, as `[project]` has them."""
    base = _requirements(root, BASE)
    extras = {extra: sorted(set(_requirements(root, members)) - set(base)) for extra, members in EXTRAS.items()}
    members = dict.fromkeys((*BASE, *(member for extra in EXTRAS.values() for member in extra)))
    projects = [_project(root, member) for member in members]
    entries: dict[str, dict[str, str]] = {}
    for project in projects:
        for group, names in project.get("entry-points", {}).items():
            entries.setdefault(group, {}).update(names)
    return {
        "dependencies": base,
        "optional-dependencies": extras,
        "scripts": {name: call for project in projects for name, call in project.get("scripts", {}).items()},
        "entry-points": entries,
    }


def _requirements(root: Path, members: Iterable[str]) -> list[str]:
    """What these members need of others, each once."""
    needed = {requirement for member in members for requirement in _project(root, member)["dependencies"]}
    return sorted(requirement for requirement in needed if not requirement.startswith("skipstone"))


def _project(root: Path, member: str) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((root / member / "pyproject.toml").read_text())["project"]
    return project
