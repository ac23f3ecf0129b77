"""What is done with objects of any kind: read, create, patch, delete, apply, watch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from skipstone_cli.cluster.transport import Ask, Transport
from skipstone_cli.errors import Expired, NotFound, Refused
from skipstone_cli.reading import JsonObject, entries_of, name_of, namespace_of, text_of

from skipstone_local.client.merging import plan_patch, with_last_applied
from skipstone_local.client.resources import Resource, Resources

PAGE = 500
#: An API server that cannot print a kind as a table answers with objects.
AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
TABLE = "Table"
STRICT = {"fieldValidation": "Strict"}
#: So often is an object read again when somebody else changed it meanwhile.
ATTEMPTS = 5
#: Fields of metadata that a patch may change though it changes nothing else.
VERSIONS = ("resourceVersion", "managedFields")


class Applied(StrEnum):
    """The result of an apply, in kubectl's words."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Change:
    """One change that a watch tells: ADDED, MODIFIED or DELETED, and the object or the table of it."""

    type: str
    body: JsonObject


@dataclass(frozen=True)
class Selection:
    """Which objects: of a namespace (empty: of all), with a name (empty: any), with labels or fields."""

    namespace: str = ""
    name: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of a list."""
        fields = f"metadata.name={self.name}" if self.name else self.fields
        given = {"labelSelector": self.labels, "fieldSelector": fields}
        return {name: text for name, text in given.items() if text}


@dataclass
class Objects:
    """The objects of one API server. ``namespace``: of those that name none.

    ``has_operator``: whether anybody does what objects ask for, such as to let go of deleted ones. ``root``: the option
    that other commands need to find them, such as `` --root lake``; empty if they need none.
    """

    transport: Transport
    namespace: str
    has_operator: bool = True
    root: str = ""
    resources: Resources = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is asked yet."""
        self.resources = Resources(self.transport)

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject:
        """The object. Raises NotFound."""
        ask = Ask(path=resource.path(namespace, name), right=right("get", resource, namespace))
        return self.transport.read(ask, kind=resource.kind)

    def list_objects(self, resource: Resource, selection: Selection) -> JsonObject:
        """All objects that are selected: a list of the kind ``List`` with their apiVersion and kind."""
        listed = self._whole(self._listing(resource, selection), f"{resource.kind}List", "items")
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return {**listed, "items": [{**head, **item} for item in entries_of(listed, "items")]}

    def tabulate(self, resource: Resource, selection: Selection) -> JsonObject:
        """The Table that the API server makes of one object, or of all that are selected. Raises NotFound."""
        if selection.name:
            path = resource.path(selection.namespace, selection.name)
            ask = Ask(path=path, right=right("get", resource, selection.namespace), accept=AS_TABLE)
            return self.transport.read(ask, kind=TABLE)
        return self._whole(self._listing(resource, selection, accept=AS_TABLE), TABLE, "rows")

    def watch(self, resource: Resource, selection: Selection, version: str, *, table: bool = False) -> Iterator[Change]:
        """The changes after ``version``, until the API server ends the watch. Raises Expired."""
        listing = self._listing(resource, selection, accept=AS_TABLE if table else "application/json")
        query = {**listing.query, "watch": "true", "resourceVersion": version}
        asked = Ask(path=listing.path, right=right("watch", resource, selection.namespace), query=query,
                    accept=listing.accept)  # fmt: skip
        for line in _lines(self.transport.stream(asked)):
            change = json.loads(line)
            if change["type"] == "ERROR":
                raise Expired(text_of(change, "object", "message"))
            yield Change(change["type"], change["object"])

    def create(self, resource: Resource, manifest: JsonObject) -> JsonObject:
        """Create an object; the object as it is then. Raises Refused."""
        namespace = namespace_of(manifest) or self.namespace
        ask = Ask(path=resource.path(namespace), right=right("create", resource, namespace), query=STRICT,
                  body=manifest, method="POST")  # fmt: skip
        return self.transport.read(ask, kind=resource.kind)

    def patch(self, resource: Resource, namespace: str, name: str, change: JsonObject) -> JsonObject:
        """Lay a merge patch over an object; the object as it is then. Raises NotFound, Refused."""
        ask = Ask(path=resource.path(namespace, name), right=right("patch", resource, namespace), query=STRICT,
                  body=change, method="PATCH")  # fmt: skip
        return self.transport.read(ask, kind=resource.kind)

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete an object, and in the background what belongs to it. Raises NotFound."""
        ask = Ask(path=resource.path(namespace, name), right=right("delete", resource, namespace),
                  body={"propagationPolicy": "Background"}, method="DELETE")  # fmt: skip
        self.transport.delete(ask)

    def apply(self, manifest: JsonObject) -> tuple[Applied, JsonObject]:
        """Create the object of a manifest or change it to what the manifest says, as ``kubectl apply`` does.

        Raises CliError: Refused with the API server's reason, and for a kind that is not served.
        """
        resource = self.resources.find_kind(text_of(manifest, "apiVersion"), text_of(manifest, "kind"))
        wanted = with_last_applied(self.placed(resource, manifest))
        for _ in range(ATTEMPTS):
            try:
                return self._apply_once(resource, wanted)
            except (Refused, NotFound) as error:
                if isinstance(error, Refused) and error.status != 409:
                    raise
                lost = error
        raise lost

    def placed(self, resource: Resource, manifest: JsonObject) -> JsonObject:
        """The manifest with the namespace that it gets."""
        if not resource.is_namespaced:
            return manifest
        namespace = namespace_of(manifest) or self.namespace
        return {**manifest, "metadata": {**(manifest.get("metadata") or {}), "namespace": namespace}}

    def _apply_once(self, resource: Resource, wanted: JsonObject) -> tuple[Applied, JsonObject]:
        namespace, name = namespace_of(wanted), name_of(wanted)
        try:
            current = self.get(resource, namespace, name)
        except NotFound:
            return Applied.CREATED, self.create(resource, wanted)
        patch = plan_patch(wanted, current)
        if not patch:
            return Applied.UNCHANGED, current
        changed = self.patch(resource, namespace, name, patch)
        # Defaults within lists, and a Secret's stringData, are in no manifest: such a patch changes nothing.
        same = _without_versions(changed) == _without_versions(current)
        return (Applied.UNCHANGED if same else Applied.CONFIGURED), changed

    def _listing(self, resource: Resource, selection: Selection, *, accept: str = "application/json") -> Ask:
        return Ask(
            path=resource.path(selection.namespace),
            right=right("list", resource, selection.namespace),
            query=selection.query,
            accept=accept,
        )

    def _whole(self, ask: Ask, kind: str, part: str) -> JsonObject:
        """All pages of a list as one."""
        for last in (False, True):
            try:
                return self._pages(ask, kind, part)
            except Expired:
                if last:
                    raise
        raise AssertionError

    def _pages(self, ask: Ask, kind: str, part: str) -> JsonObject:
        first = page = self._page(ask, kind, "")
        items = list(page.get(part) or ())
        while following := text_of(page, "metadata", "continue"):
            page = self._page(ask, kind, following)
            items += page.get(part) or ()
        return {**first, part: items}

    def _page(self, ask: Ask, kind: str, following: str) -> JsonObject:
        query = {**ask.query, "limit": str(PAGE), **({"continue": following} if following else {})}
        asked = Ask(path=ask.path, right=ask.right, query=query, accept=ask.accept)
        return self.transport.read(asked, kind=kind)


def _without_versions(obj: JsonObject) -> JsonObject:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in VERSIONS}
    return {**obj, "metadata": metadata}


def right(verb: str, resource: Resource, namespace: str) -> str:
    """Return the right that a user needs, in words."""
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    return f"{verb} {resource.plural} {where}" if resource.is_namespaced else f"{verb} {resource.plural}"


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines out of pieces of them."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line for line in whole if line.strip())
