"""The kinds that an API server serves, found by every name that kubectl takes for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from skipstone_cli.cluster.transport import Ask, Transport
from skipstone_cli.errors import CliError
from skipstone_cli.kinds import API_VERSION, KINDS
from skipstone_cli.reading import JsonObject, entries_of, is_set, text_of, texts_of

CORE = "v1"
DISCOVERY = "list the kinds of the API server"


@dataclass(frozen=True)
class Resource:
    """One kind as an API server serves it. ``api_version``: such as ``v1`` or ``skipstone.dev/v1alpha1``."""

    api_version: str
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    is_namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group, empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def full_name(self) -> str:
        """The name that kubectl prints before ``/NAME``, such as ``table.skipstone.dev``."""
        return f"{self.kind.lower()}.{self.group}".removesuffix(".")

    def is_called(self, word: str) -> bool:
        """Return whether ``word`` in lower case is a name of this kind, with or without its group."""
        name, _, group = word.partition(".")
        return name in (self.plural, self.singular, *self.short_names) and group in ("", self.group)

    def path(self, namespace: str, name: str = "") -> tuple[str, ...]:
        """The path of an object, or of all objects; the namespace may be empty for those of all namespaces."""
        root = ("api", self.api_version) if not self.group else ("apis", *self.api_version.split("/"))
        within = ("namespaces", namespace) if self.is_namespaced and namespace else ()
        return (*root, *within, self.plural, *((name,) if name else ()))


@dataclass
class Resources:
    """The kinds of one API server, asked for as far as they are needed."""

    transport: Transport
    _served: dict[str, tuple[Resource, ...]] = field(default_factory=dict)

    def find(self, word: str) -> tuple[Resource, ...]:
        """The kind of that name, or those of that category, such as ``skipstone``. Raises CliError."""
        lowered = word.lower()
        for resource in self._all():
            if resource.is_called(lowered):
                return (resource,)
        members = [resource for resource in self._all() if lowered in resource.categories]
        if members:
            return tuple(sorted(members, key=_rank))
        raise CliError(
            f"the API server has no resource type {word!r}: use one such as tables (tbl), mergejobs (mj) or pods (po)"
        )

    def find_kind(self, api_version: str, kind: str) -> Resource:
        """The kind that a manifest names. Raises CliError."""
        for resource in self._of_version(api_version):
            if resource.kind == kind:
                return resource
        raise CliError(
            f"the API server has no kind {kind!r} of apiVersion {api_version!r}: correct kind and apiVersion"
        )

    def _all(self) -> Iterator[Resource]:
        """Ours first: who asks for them needs no list of the others."""
        yield from self._of_version(API_VERSION)
        yield from self._of_version(CORE)
        ask = Ask(path=("apis",), right=DISCOVERY)
        for group in entries_of(self.transport.read_plain(ask, kind="APIGroupList"), "groups"):
            version = text_of(group, "preferredVersion", "groupVersion")
            if version and version != API_VERSION:
                yield from self._of_version(version)

    def _of_version(self, api_version: str) -> tuple[Resource, ...]:
        if api_version not in self._served:
            root = ("api",) if api_version == CORE else ("apis",)
            ask = Ask(path=(*root, *api_version.split("/")), right=DISCOVERY)
            listed = entries_of(self.transport.read_plain(ask, kind="APIResourceList"), "resources")
            self._served[api_version] = tuple(
                _read(api_version, entry) for entry in listed if "/" not in text_of(entry, "name")
            )
        return self._served[api_version]


def _rank(resource: Resource) -> tuple[int, str]:
    """Ours as they build on each other, then all others by name: API servers list kinds in any order."""
    plurals = [kind.plural for kind in KINDS]
    ours = resource.api_version == API_VERSION and resource.plural in plurals
    return (plurals.index(resource.plural) if ours else len(plurals), resource.plural)


def _read(api_version: str, entry: JsonObject) -> Resource:
    kind = text_of(entry, "kind")
    return Resource(
        api_version=api_version,
        kind=kind,
        plural=text_of(entry, "name"),
        singular=text_of(entry, "singularName") or kind.lower(),
        short_names=texts_of(entry, "shortNames"),
        categories=texts_of(entry, "categories"),
        is_namespaced=is_set(entry, "namespaced"),
    )
