"""Which kinds are served: those of Skipstone, by their CustomResourceDefinitions, and what they need of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from skipstone_operator.resources.kinds import GROUP

from skipstone_local.admission import load_definitions
from skipstone_local.server.kinds.columns import COMMON, Column, built_in_columns, read_columns
from skipstone_local.store import JsonObject


@dataclass(frozen=True, kw_only=True)
class ServedKind:
    """One kind in one version of a group.

    ``selectable``: paths of fields for selectors. ``generations``: whether a change of the spec counts.
    ``schema``: of kinds of Skipstone. ``subresources``: beside the object itself. ``note``: a warning for creators.
    """

    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    columns: tuple[Column, ...] = COMMON
    generations: bool = False
    schema: JsonObject = field(default_factory=dict, compare=False)
    note: str = ""

    @property
    def singular(self) -> str:
        """The name of one object in commands."""
        return self.name.lower()

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural and the group, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def resource(self) -> str:
        """Return the name of the kind in the store. Events are the same objects in both groups."""
        return "events" if self.plural == "events" else self.qualified

    @property
    def is_ours(self) -> bool:
        """Return whether it is a kind of Skipstone."""
        return self.group == GROUP

    @property
    def has_status(self) -> bool:
        """Return whether its status is written by requests of their own."""
        return "status" in self.subresources


def _built_in(name: str, plural: str, **more: object) -> ServedKind:
    return ServedKind(name=name, plural=plural, columns=built_in_columns(name), **more)  # type: ignore[arg-type]


def _reference(prefix: str) -> tuple[str, ...]:
    parts = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")
    return tuple(f"{prefix}.{part}" for part in parts)


RIGHTS = "rbac.authorization.k8s.io"
NO_RIGHTS = "this server enforces no roles: whoever has its token may do everything"
BUILT_IN = (
    _built_in(
        "Namespace", "namespaces", short_names=("ns",), namespaced=False, subresources=("finalize", "status"),
        selectable=("status.phase",),
    ),
    _built_in("Node", "nodes", short_names=("no",), namespaced=False, subresources=("status",)),
    _built_in(
        "Pod", "pods", short_names=("po",), categories=("all",), generations=True,
        subresources=("binding", "eviction", "log", "status"),
        selectable=("status.phase", "spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName"),
    ),
    _built_in("ConfigMap", "configmaps", short_names=("cm",)),
    _built_in("Secret", "secrets", selectable=("type",)),
    _built_in("PersistentVolumeClaim", "persistentvolumeclaims", short_names=("pvc",), subresources=("status",)),
    _built_in(
        "Event", "events", short_names=("ev",),
        selectable=(*_reference("involvedObject"), "reason", "reportingComponent", "source", "type"),
    ),
    _built_in("ServiceAccount", "serviceaccounts", short_names=("sa",), subresources=("token",)),
    _built_in("Service", "services", short_names=("svc",), categories=("all",), subresources=("status",)),
    _built_in("ResourceQuota", "resourcequotas", short_names=("quota",), subresources=("status",)),
    _built_in(
        "Event", "events", group="events.k8s.io", short_names=("ev",),
        selectable=(*_reference("regarding"), "reason", "reportingController", "type"),
    ),
    _built_in("Lease", "leases", group="coordination.k8s.io"),
    _built_in(
        "Deployment", "deployments", group="apps", short_names=("deploy",), categories=("all",), generations=True,
        subresources=("status",),
    ),
    _built_in(
        "PodDisruptionBudget", "poddisruptionbudgets", group="policy", short_names=("pdb",), generations=True,
        subresources=("status",),
    ),
    _built_in(
        "NetworkPolicy", "networkpolicies", group="networking.k8s.io", short_names=("netpol",), generations=True
    ),
    _built_in(
        "PriorityClass", "priorityclasses", group="scheduling.k8s.io", short_names=("pc",), namespaced=False
    ),
    _built_in("Role", "roles", group=RIGHTS, note=NO_RIGHTS),
    _built_in("RoleBinding", "rolebindings", group=RIGHTS, note=NO_RIGHTS),
    _built_in("ClusterRole", "clusterroles", group=RIGHTS, note=NO_RIGHTS, namespaced=False),
    _built_in("ClusterRoleBinding", "clusterrolebindings", group=RIGHTS, note=NO_RIGHTS, namespaced=False),
    *(
        _built_in(name, f"{name.lower()}s", group="authorization.k8s.io", namespaced=False)
        for name in ("SelfSubjectAccessReview", "SelfSubjectRulesReview")
    ),
    _built_in("SelfSubjectReview", "selfsubjectreviews", group="authentication.k8s.io", namespaced=False),
)  # fmt: skip


def read_definition(definition: JsonObject) -> Iterator[ServedKind]:
    """The kinds that a CustomResourceDefinition has served."""
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        yield ServedKind(
            name=names["kind"],
            plural=names["plural"],
            group=spec["group"],
            version=version["name"],
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            namespaced=spec["scope"] == "Namespaced",
            subresources=tuple(sorted(version.get("subresources", {}))),
            selectable=tuple(each["jsonPath"].removeprefix(".") for each in version.get("selectableFields", ())),
            columns=read_columns(version.get("additionalPrinterColumns", ())),
            generations=True,
            schema=version["schema"]["openAPIV3Schema"],
        )


@dataclass(frozen=True)
class Catalog:
    """All kinds that are served."""

    kinds: tuple[ServedKind, ...]

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        """The kind of that path, or None."""
        return next(
            (kind for kind in self.kinds if (kind.group, kind.version, kind.plural) == (group, version, plural)), None
        )

    def of_resource(self, resource: str) -> ServedKind:
        """The kind whose objects the store files under ``resource``."""
        return next(kind for kind in self.kinds if kind.resource == resource)

    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Versions by group, core left out."""
        versions: dict[str, tuple[str, ...]] = {}
        for kind in self.kinds:
            if kind.group and kind.version not in versions.get(kind.group, ()):
                versions[kind.group] = (*versions.get(kind.group, ()), kind.version)
        return versions

    def within(self, group: str, version: str) -> tuple[ServedKind, ...]:
        """The kinds of a version of a group."""
        return tuple(kind for kind in self.kinds if (kind.group, kind.version) == (group, version))


def load_catalog(definitions: Iterable[JsonObject] | None = None) -> Catalog:
    """The kinds of Skipstone, as the CustomResourceDefinitions of this package or others say, and Kubernetes' own."""
    chosen = load_definitions() if definitions is None else definitions
    return Catalog((*BUILT_IN, *(kind for definition in chosen for kind in read_definition(definition))))
