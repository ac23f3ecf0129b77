"""``skipstone local apply``: objects are created, or changed to what their manifests say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skipstone_cli.errors import CliError, ExitCode, Unreachable
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import name_of, namespace_of

from skipstone_local.client.manifests import Manifest, read_manifests
from skipstone_local.client.objects import Objects


@dataclass(frozen=True)
class Sources:
    """Files, folders or ``-``; ``recursive``: folders in folders too. ``namespace``: as given, else empty."""

    names: Sequence[str]
    namespace: str = ""
    recursive: bool = False

    def read(self) -> list[Manifest]:
        """The manifests. Raises CliError, also for one of another namespace than the one given."""
        manifests = read_manifests(self.names, recursive=self.recursive)
        for manifest in manifests:
            own = namespace_of(manifest.body)
            if self.namespace and own not in ("", self.namespace):
                raise CliError(f"{manifest} is of namespace {own}, --namespace is {self.namespace}: use one")
        return manifests


def run_apply(objects: Objects, screen: Screen, sources: Sources) -> ExitCode:
    """Apply all manifests; one that is refused keeps no other one from being applied. Raises CliError."""
    code = ExitCode.FINE
    for manifest in sources.read():
        try:
            applied, stored = objects.apply(manifest.body)
        except Unreachable:
            raise
        except CliError as error:
            screen.note(f"skipstone: {manifest}: {error}")
            code = ExitCode.REFUSED
            continue
        resource = objects.resources.find_kind(manifest.body["apiVersion"], manifest.body["kind"])
        screen.write(f"{resource.full_name}/{name_of(stored)} {applied}\n")
    return code
