"""What the commands read and write in the API server: objects of our kinds, Events, pods and their logs.

Every answer is complete or an error: a list has all of its pages, each from one moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone_cli.cluster.transport import Ask, Transport
from skipstone_cli.errors import Expired, NotFound, Unreachable
from skipstone_cli.kinds import (
    API_VERSION,
    COMPONENT_LABEL,
    DRIVER_CONTAINER,
    DRIVER_ROLE,
    GROUP,
    KEEP_OPERATION,
    OPERATION_LABEL,
    OWNER_UID_LABEL,
    ROLE_LABEL,
    SERVER_COMPONENT,
    VERSION,
    WAREHOUSE_UID_LABEL,
    ResourceKind,
    Target,
)
from skipstone_cli.reading import JsonObject, name_of, text_of, uid_of

PAGE = 500
#: The namespace of lists over all namespaces.
EVERYWHERE = ""


@dataclass(frozen=True)
class Api:
    """The API server in one namespace; ``EVERYWHERE`` for lists over all.

    ``lister``: a command that lists objects. ``starter``: the command that starts an operator where there is none.
    """

    transport: Transport
    namespace: str
    lister: str = "kubectl get {kind} --namespace {namespace}"
    starter: str = ""

    def get(self, target: Target) -> JsonObject:
        """The object. Raises NotFound in a sentence."""
        kind = target.kind
        ask = Ask(path=self._path(target), right=self._right("get", kind.plural))
        try:
            return self._checked(self.transport.read(ask, kind=kind.name))
        except NotFound as error:
            raise NotFound(
                f"there is no {kind.name} {target.name} in namespace {self.namespace}: "
                f"see '{self.lister.format(kind=kind.short, namespace=self.namespace)}'"
            ) from error

    def list_kind(self, kind: ResourceKind, *, field: str = "") -> tuple[JsonObject, ...]:
        """All objects of a kind, those that ``field`` selects. Raises Forbidden, Unreachable."""
        within = ("namespaces", self.namespace) if self.namespace != EVERYWHERE else ()
        path = ("apis", GROUP, VERSION, *within, kind.plural)
        query = {"fieldSelector": field} if field else {}
        ask = Ask(path=path, right=self._right("list", kind.plural), query=query)
        return self._list(ask, f"{kind.name}List")

    def list_events(self, uid: str) -> tuple[JsonObject, ...]:
        """The Events about the object with this uid."""
        path = ("api", "v1", "namespaces", self.namespace, "events")
        query = {"fieldSelector": f"involvedObject.uid={uid}"}
        return self._list(Ask(path=path, right=self._right("list", "events"), query=query), "EventList")

    def list_drivers(self, uid: str) -> tuple[JsonObject, ...]:
        """The driver pods of the object with this uid."""
        return _without_kept(self._list_pods({OWNER_UID_LABEL: uid, ROLE_LABEL: DRIVER_ROLE}))

    def list_runs(self, uid: str) -> tuple[JsonObject, ...]:
        """The driver pods of the Warehouse with this uid."""
        return _without_kept(self._list_pods({WAREHOUSE_UID_LABEL: uid, ROLE_LABEL: DRIVER_ROLE}))

    def list_servers(self, uid: str) -> tuple[JsonObject, ...]:
        """The pods of the planning server of the Warehouse with this uid."""
        return self._list_pods({WAREHOUSE_UID_LABEL: uid, COMPONENT_LABEL: SERVER_COMPONENT})

    def _list_pods(self, labels: Mapping[str, str]) -> tuple[JsonObject, ...]:
        path = ("api", "v1", "namespaces", self.namespace, "pods")
        query = {"labelSelector": ",".join(f"{name}={value}" for name, value in labels.items())}
        return self._list(Ask(path=path, right=self._right("list", "pods"), query=query), "PodList")

    def read_log(self, pod: str, *, tail: int | None = None, follow: bool = False, since: str = "") -> Iterator[bytes]:
        """The log of a driver pod piece by piece, its last ``tail`` lines, or those since a time.

        Raises NotFound when the pod is gone.
        """
        query = {"container": DRIVER_CONTAINER}
        if tail is not None:
            query["tailLines"] = str(tail)
        if since:
            query["sinceTime"] = since
        if follow:
            query["follow"] = "true"
        path = ("api", "v1", "namespaces", self.namespace, "pods", pod, "log")
        return self.transport.stream(Ask(path=path, right=self._right("get", "pods/log"), query=query))

    def annotate(self, target: Target, name: str, value: str) -> JsonObject:
        """Set one annotation; the object as it is then. Raises NotFound, Forbidden."""
        return self.patch(target, {"metadata": {"annotations": {name: value}}})

    def patch(self, target: Target, change: JsonObject) -> JsonObject:
        """Lay a merge patch over an object; the object as it is then. Raises NotFound, Forbidden."""
        ask = Ask(path=self._path(target), right=self._right("patch", target.kind.plural), body=change, method="PATCH")
        return self._checked(self.transport.read(ask, kind=target.kind.name))

    def create(self, kind: ResourceKind, manifest: JsonObject) -> JsonObject:
        """Create an object; the object as it is then. Raises CliError for a field that the API server does not know."""
        path = ("apis", GROUP, VERSION, "namespaces", self.namespace, kind.plural)
        query = {"fieldValidation": "Strict"}
        ask = Ask(path=path, right=self._right("create", kind.plural), query=query, body=manifest, method="POST")
        return self._checked(self.transport.read(ask, kind=kind.name))

    def delete(self, target: Target) -> None:
        """Delete an object, and in the background what belongs to it. Raises NotFound, Forbidden."""
        options: JsonObject = {"propagationPolicy": "Background"}
        right = self._right("delete", target.kind.plural)
        self.transport.delete(Ask(path=self._path(target), right=right, body=options, method="DELETE"))

    def _path(self, target: Target) -> tuple[str, ...]:
        return ("apis", GROUP, VERSION, "namespaces", self.namespace, target.kind.plural, target.name)

    def _right(self, verb: str, resource: str) -> str:
        where = f"in namespace {self.namespace}" if self.namespace != EVERYWHERE else "in all namespaces"
        return f"{verb} {resource} {where}"

    def _checked(self, obj: JsonObject) -> JsonObject:
        if text_of(obj, "apiVersion") != API_VERSION or not name_of(obj) or not uid_of(obj):
            raise Unreachable(
                f"{self.transport.server} answers with an object without name, uid or apiVersion {API_VERSION}: "
                "check that no proxy is between"
            )
        return obj

    def _list(self, ask: Ask, kind: str) -> tuple[JsonObject, ...]:
        try:
            return tuple(self._pages(ask, kind))
        except Expired:
            # The moment of the first page is compacted away: what was read is of no use beside later pages.
            try:
                return tuple(self._pages(ask, kind))
            except Expired as error:
                raise Unreachable("the API server forgets lists faster than they can be read: try again") from error

    def _pages(self, ask: Ask, kind: str) -> Iterator[JsonObject]:
        token = ""
        while True:
            query = {**ask.query, "limit": str(PAGE), **({"continue": token} if token else {})}
            page = self.transport.read(Ask(path=ask.path, right=ask.right, query=query), kind=kind)
            items = page.get("items", ...)
            items = [] if items is None else items
            if not isinstance(items, list) or not all(isinstance(item, dict) and name_of(item) for item in items):
                raise Unreachable(
                    f"{self.transport.server} answers with a {kind} without its items: check that no proxy is between"
                )
            yield from items
            following = text_of(page, "metadata", "continue")
            if not following:
                return
            if following == token:
                raise Unreachable(f"{self.transport.server} gives the same page of a {kind} again and again: try again")
            token = following


def _without_kept(pods: tuple[JsonObject, ...]) -> tuple[JsonObject, ...]:
    """``pods`` without kept drivers, which are no runs."""
    return tuple(pod for pod in pods if text_of(pod, "metadata", "labels", OPERATION_LABEL) != KEEP_OPERATION)
