"""The volumes of a pod as folders and files of this machine, and where its mounts are then."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from skipstone_local.places import RootFolder
from skipstone_local.runner.environment import CannotMake, JsonObject, Lookup, read_values
from skipstone_local.runner.folders import SCRATCH, VOLUMES
from skipstone_local.runner.mounts import Mounts

#: Paths that every container of the data plane's image has, besides its mounts.
_OWN = ("/tmp",)


class ClaimMissing(Exception):
    """A volume names a PersistentVolumeClaim that does not exist, or that has no folder yet."""


@dataclass(frozen=True)
class PodVolumes:
    """Makes the volumes of ``pod`` below its folder. ``interpreter``: the Python that runs the data plane here."""

    root: RootFolder
    pod: JsonObject
    interpreters: Mapping[str, str]

    @property
    def _folder(self) -> Path:
        return self.root.pod(self.pod["metadata"]["uid"])

    def locate(self, container: JsonObject) -> Mounts:
        """Where the paths of ``container`` are on this machine. Raises CannotMake."""
        places = {path: str(self._scratch(path.strip("/"))) for path in _OWN} | dict(self.interpreters)
        volumes = {volume["name"]: volume for volume in self.pod["spec"].get("volumes") or ()}
        for mount in container.get("volumeMounts") or ():
            volume, path = volumes.get(mount["name"]), mount["mountPath"].rstrip("/")
            if volume is None or not path or mount.get("subPathExpr"):
                raise CannotMake(f"volumeMounts[{mount['name']}] is not supported here: name a volume and a folder")
            places[path] = str(self._place(volume) / mount.get("subPath", ""))
        return Mounts(places, str(self.root.path))

    def find(self, mounts: Mounts, path: str) -> Path:
        """The folder in the place of ``path``, made if it is not there. Raises CannotMake."""
        place = Path(mounts.map_text(path))
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotMake(f"{path} is not a folder that can be used here: {error.strerror}") from error
        return place

    def make(self, mounts: Mounts, lookup: Lookup) -> None:
        """Make folders and files; texts in which paths are known are mapped. Raises CannotMake and ClaimMissing."""
        self._scratch("tmp").mkdir(parents=True, exist_ok=True)
        for volume in self.pod["spec"].get("volumes") or ():
            self._make_volume(volume, mounts, lookup)

    def _make_volume(self, volume: JsonObject, mounts: Mounts, lookup: Lookup) -> None:
        place = self._place(volume)
        if claim := volume.get("persistentVolumeClaim"):
            if not place.is_dir():
                raise ClaimMissing(f'persistentvolumeclaim "{claim["claimName"]}" not found')
        elif "emptyDir" in volume or "ephemeral" in volume:
            place.mkdir(parents=True, exist_ok=True)
        else:
            self._write_files(volume, place, mounts, lookup)

    def _write_files(self, volume: JsonObject, place: Path, mounts: Mounts, lookup: Lookup) -> None:
        kind, source = ("Secret", volume["secret"]) if "secret" in volume else ("ConfigMap", volume["configMap"])
        name = source.get("secretName" if kind == "Secret" else "name", "")
        obj = lookup(kind, name)
        if obj is None and not source.get("optional"):
            raise CannotMake(f'{kind.lower()} "{name}" not found')
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        values = read_values(obj) if obj is not None else {}
        for key, path in _choose(source, values, f'{kind.lower()} "{name}"').items():
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_mapped(kind, key, values[key], mounts))

    def _place(self, volume: JsonObject) -> Path:
        """The folder of a volume. Raises CannotMake for a kind that is not supported here."""
        name = str(volume["name"])
        if claim := volume.get("persistentVolumeClaim"):
            return self.root.claim(str(self.pod["metadata"]["namespace"]), str(claim["claimName"]))
        if "emptyDir" in volume or "ephemeral" in volume:
            return self._scratch(name)
        if "configMap" in volume or "secret" in volume:
            return self._folder / VOLUMES / name
        kinds = ", ".join(sorted(set(volume) - {"name"}))
        raise CannotMake(f"volumes[{name}]: {kinds or 'nothing'} is not supported here")

    def _scratch(self, name: str) -> Path:
        return self._folder / SCRATCH / name


def _choose(source: JsonObject, values: Mapping[str, bytes], what: str) -> dict[str, str]:
    """Key to relative path of each file. Raises CannotMake."""
    items = source.get("items")
    if items is None:
        return {key: key for key in values}
    chosen = {item["key"]: item["path"] for item in items if item["key"] in values or not source.get("optional")}
    for key, path in chosen.items():
        if key not in values:
            raise CannotMake(f"{what} has no key {key}")
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise CannotMake(f"items[{key}].path of {what} must be relative and without ..")
    return chosen


def _mapped(kind: str, key: str, content: bytes, mounts: Mounts) -> bytes:
    if kind != "ConfigMap":
        return content
    try:
        return mounts.map_file(key, content.decode()).encode()
    except UnicodeDecodeError:
        return content


def remove_folder(folder: Path) -> None:
    """Remove all of a pod's folder; what cannot be removed now is removed at the next start."""
    shutil.rmtree(folder, ignore_errors=True)
