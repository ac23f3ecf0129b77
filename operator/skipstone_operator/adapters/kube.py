"""The API server as reconcilers see it: implements ``ports.KubeApi``.

A verdict of the API server (exists, conflict, gone, refused) is a value; everything else is ApiFault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from skipstone_core.errors import SkipstoneError

from skipstone_operator.adapters.cached import CACHED_KINDS, FOREIGN
from skipstone_operator.adapters.connection import JSON, Answer, ApiFault, Connection
from skipstone_operator.ports import (
    AccessDenied,
    Conflict,
    CreateAnswer,
    Created,
    DeleteAnswer,
    Deleted,
    Exists,
    Gone,
    JsonObject,
    Refused,
    UpdateAnswer,
    Updated,
)
from skipstone_operator.resources.kinds import API_VERSION, KINDS

PAGE = 500
#: Only the metadata of what is listed; whole objects from a server that cannot leave the rest out.
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
MAX_MESSAGE = 2048
#: apiVersion and plural of every kind that the operator touches.
RESOURCES: Mapping[str, tuple[str, str]] = {
    **{kind.name: (API_VERSION, kind.plural) for kind in KINDS.values()},
    **{kind: (f"{of.group}/{of.version}" if of.group else of.version, of.plural) for kind, of in FOREIGN.items()},
    "Secret": ("v1", "secrets"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "Event": ("events.k8s.io/v1", "events"),
}


class Unprepared(SkipstoneError):
    """The cluster lacks what the operator needs; the text says what to do."""


def path_of(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    """The path of a collection, of an object or of its subresource."""
    api_version, plural = RESOURCES[kind]
    root = "api" if "/" not in api_version else "apis"
    return "/".join(filter(None, (f"/{root}/{api_version}/namespaces/{namespace}/{plural}", name, subresource)))


@dataclass(frozen=True)
class Snapshot:
    """A complete LIST. ``head`` carries its resourceVersion."""

    head: JsonObject
    objects: tuple[JsonObject, ...]


@dataclass(frozen=True)
class Listing:
    """The names that a complete LIST found, and the resourceVersion of each. ``head`` carries the LIST's own."""

    head: JsonObject
    versions: Mapping[str, str]


@dataclass(frozen=True)
class KubeClient:
    """Implements ``ports.KubeApi`` on one connection."""

    connection: Connection

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """The object as it is now, or None. Raises ApiFault."""
        answer = await self.connection.request("GET", path_of(kind, namespace, name))
        return None if answer.status == 404 else _read(answer, f"GET {kind} {namespace}/{name}")

    async def list(
        self,
        kind: str,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[JsonObject, ...]:
        """All objects with these labels and fields, read from etcd in pages. Raises ApiFault."""
        return (await self.snapshot(kind, namespace, labels=labels, fields=fields)).objects

    async def snapshot(
        self,
        kind: str,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """What ``list`` answers, and when it was so: all pages show one moment. Raises ApiFault."""
        pages = await self._pages(kind, namespace, _selection(labels, fields), JSON)
        return Snapshot(pages[-1], tuple(item for page in pages for item in _items(kind, page)))

    async def listing(self, kind: str, namespace: str, *, labels: Mapping[str, str] | None = None) -> Listing:
        """What ``snapshot`` finds, without the objects. Raises ApiFault."""
        pages = await self._pages(kind, namespace, _selection(labels, None), METADATA_ONLY)
        entries = (item["metadata"] for page in pages for item in page.get("items") or ())
        return Listing(pages[-1], {each["name"]: each["resourceVersion"] for each in entries})

    async def _pages(
        self, kind: str, namespace: str, selection: Mapping[str, str], accept: str
    ) -> tuple[JsonObject, ...]:
        pages: list[JsonObject] = []
        query = {**selection, "limit": str(PAGE)}
        while True:
            answer = await self.connection.request(
                "GET", path_of(kind, namespace), query=query, headers={"Accept": accept}
            )
            if answer.status == 410 and pages:
                # The moment of the first page is compacted away: one answer without pages shows one moment again.
                pages, query = [], dict(selection)
                continue
            pages.append(_read(answer, f"LIST {kind} {namespace}"))
            if not (more := pages[-1].get("metadata", {}).get("continue")):
                return tuple(pages)
            query["continue"] = more

    async def is_terminating(self, namespace: str) -> bool:
        """Return whether ``namespace`` is being deleted, or gone. Raises AccessDenied and ApiFault."""
        answer = await self.connection.request("GET", f"/api/v1/namespaces/{namespace}")
        if answer.status == 404:
            return True
        return bool(_read(answer, f"GET Namespace {namespace}")["metadata"].get("deletionTimestamp"))

    async def create(self, obj: JsonObject) -> CreateAnswer:
        """POST once. Raises ApiFault; the object may then exist or not."""
        kind, metadata = obj["kind"], obj["metadata"]
        answer = await self.connection.request("POST", path_of(kind, metadata["namespace"]), body=obj)
        if answer.ok:
            return Created(answer.body)
        if answer.status == 409 and answer.body.get("reason") == "AlreadyExists":
            return Exists()
        if answer.status == 409:
            raise ApiFault(f"POST {kind} {metadata['namespace']}/{metadata['name']}: {answer.body.get('message')}")
        return _refused(answer)

    async def replace(self, obj: JsonObject) -> UpdateAnswer:
        """PUT the object with the resourceVersion in it. Raises ApiFault."""
        return await self._put(obj, "")

    async def replace_status(self, obj: JsonObject) -> UpdateAnswer:
        """PUT the object's status with the resourceVersion in it. Raises ApiFault."""
        return await self._put(obj, "status")

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str) -> DeleteAnswer:
        """DELETE in the background, only the object with this uid. Raises ApiFault."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        answer = await self.connection.request("DELETE", path_of(kind, namespace, name), body=options)
        if answer.ok:
            return Deleted()
        return _write_verdict(answer)

    async def _put(self, obj: JsonObject, subresource: str) -> UpdateAnswer:
        metadata = obj["metadata"]
        path = path_of(obj["kind"], metadata["namespace"], metadata["name"], subresource)
        answer = await self.connection.request("PUT", path, body=obj)
        return Updated(answer.body) if answer.ok else _write_verdict(answer)

    async def check_resources(self) -> None:
        """Raise Unprepared when a kind of ours is not served: the watch would wait for it in silence."""
        answer = await self.connection.request("GET", f"/apis/{API_VERSION}")
        served = {resource.get("name") for resource in answer.body.get("resources", ())}
        missing = sorted(kind.plural for kind in KINDS.values() if kind.plural not in served)
        if missing:
            raise Unprepared(
                f"the API server does not serve {', '.join(missing)} of {API_VERSION}: apply the CRDs first "
                "(kubectl apply --server-side -f crds/)"
            )

    async def find_objection(self, namespace: str) -> str | None:
        """Why the operator cannot watch its kinds in ``namespace``, in one sentence; None when it can."""
        for kind in CACHED_KINDS:
            query, plural = {"limit": "1"}, RESOURCES[kind][1]
            if kind in KINDS and KINDS[kind].selectable:
                query["fieldSelector"] = ",".join(f"{path}=x" for path in KINDS[kind].selectable)
            answer = await self.connection.request("GET", path_of(kind, namespace), query=query)
            if answer.status == 400:
                message = answer.body.get("message", "")
                raise Unprepared(
                    f"the API server cannot select {plural} by their fields: apply the CRDs of this release "
                    f"(kubectl apply --server-side -f crds/) to Kubernetes 1.31 or newer ({message})"
                )
            if answer.status == 403:
                return (
                    f"namespace {namespace}: the operator may not list {plural}; add the namespace to the "
                    f"chart's list of watched namespaces, or bind its Role there ({answer.body.get('message', '')})"
                )
            _read(answer, f"LIST {kind} {namespace}")
        return None


class NotHolder(ConnectionError):
    """The Lease is not held, so nothing may be written: another operator may be running."""


@dataclass(frozen=True)
class FencedClient(KubeClient):
    """Writes only while ``may_write`` says so: a pass that began with the Lease may end without it."""

    may_write: Callable[[], bool]

    async def create(self, obj: JsonObject) -> CreateAnswer:
        """As KubeClient. Raises NotHolder."""
        self._require()
        return await super().create(obj)

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str) -> DeleteAnswer:
        """As KubeClient. Raises NotHolder."""
        self._require()
        return await super().delete(kind, namespace, name, uid=uid)

    async def _put(self, obj: JsonObject, subresource: str) -> UpdateAnswer:
        self._require()
        return await super()._put(obj, subresource)

    def _require(self) -> None:
        if not self.may_write():
            raise NotHolder("the lease is not held: nothing is written")


def _read(answer: Answer, what: str) -> JsonObject:
    if answer.ok:
        return answer.body
    message = f"{what}: {answer.status} {answer.body.get('message', '')}".rstrip()
    raise AccessDenied(message) if answer.status == 403 else ApiFault(message)


def _items(kind: str, page: JsonObject) -> Iterator[JsonObject]:
    # Items of a list carry neither apiVersion nor kind; with them they look as a GET shows them.
    for item in page.get("items") or ():
        yield {"apiVersion": RESOURCES[kind][0], "kind": kind, **item}


def _selection(labels: Mapping[str, str] | None, fields: Mapping[str, str] | None) -> dict[str, str]:
    chosen = {"labelSelector": _selector(labels or {}), "fieldSelector": _selector(fields or {})}
    return {name: text for name, text in chosen.items() if text}


def _selector(pairs: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in pairs.items())


def _write_verdict(answer: Answer) -> Conflict | Gone | Refused:
    if answer.status == 409:
        return Conflict()
    return Gone() if answer.status == 404 else _refused(answer)


def _refused(answer: Answer) -> Refused:
    causes = answer.body.get("details", {}).get("causes") or ()
    return Refused(
        status=answer.status,
        reason=str(answer.body.get("reason", "")),
        message=str(answer.body.get("message", ""))[:MAX_MESSAGE],
        causes=tuple(str(cause.get("reason", "")) for cause in causes),
    )
