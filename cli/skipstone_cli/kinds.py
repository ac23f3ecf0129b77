"""The kinds by every name that kubectl takes for them, and the ``KIND/NAME`` that users write.

Pure. The operator has the same names for its CRDs; a test compares them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from skipstone_cli.errors import CliError
from skipstone_cli.reading import JsonObject

GROUP = "skipstone.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
#: Labels by which the pods of a run are found.
OWNER_UID_LABEL = f"{GROUP}/owner-uid"
WAREHOUSE_UID_LABEL = f"{GROUP}/warehouse-uid"
RUN_ID_LABEL = f"{GROUP}/run-id"
#: The operation of a kept driver's own pod, which is not a run.
KEEP_OPERATION = "Keep"
KEPT_DRIVER_LABEL = f"{GROUP}/kept-driver"
OPERATION_LABEL = f"{GROUP}/operation"
ROLE_LABEL = "spark-role"
DRIVER_ROLE = "driver"
DRIVER_CONTAINER = "spark-kubernetes-driver"
#: Of the pods of planning servers.
COMPONENT_LABEL, SERVER_COMPONENT = "app.kubernetes.io/component", "planning"
SERVER_CONTAINER = "planning"
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class ResourceKind:
    """One kind and its names."""

    name: str
    plural: str
    short: str

    @property
    def singular(self) -> str:
        """The name for one object, in lower case."""
        return self.name.lower()


WAREHOUSE = ResourceKind("Warehouse", "warehouses", "wh")
TABLE = ResourceKind("Table", "tables", "tbl")
INDEX = ResourceKind("SecondaryIndex", "secondaryindexes", "si")
LOAD_JOB = ResourceKind("LoadJob", "loadjobs", "lj")
MERGE_JOB = ResourceKind("MergeJob", "mergejobs", "mj")
SCHEDULE = ResourceKind("MergeSchedule", "mergeschedules", "ms")
KINDS = (WAREHOUSE, TABLE, INDEX, LOAD_JOB, MERGE_JOB, SCHEDULE)
JOB_KINDS = (LOAD_JOB, MERGE_JOB)
_BY_NAME = {name: kind for kind in KINDS for name in (kind.singular, kind.plural, kind.short)}


@dataclass(frozen=True, eq=False)
class Item:
    """An object and its kind, which the items of a list do not say themselves."""

    kind: ResourceKind
    obj: JsonObject


@dataclass(frozen=True)
class Target:
    """One object as the user named it."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.short}/{self.name}"


def find_kind(text: str) -> ResourceKind:
    """The kind of that name, in any case, with or without its API group. Raises CliError that lists the kinds."""
    word = text.lower().removesuffix(f".{GROUP}").removesuffix(f".{VERSION}")
    if (kind := _BY_NAME.get(word)) is not None:
        return kind
    known = ", ".join(f"{kind.singular} ({kind.short})" for kind in KINDS)
    raise CliError(f"{text!r} is not a kind of Skipstone: use one of {known}")


def parse_target(text: str, allowed: tuple[ResourceKind, ...] = KINDS) -> Target:
    """The object that ``KIND/NAME`` names. Raises CliError for another form, or for a kind that is not allowed."""
    word, slash, name = text.partition("/")
    if not slash or not word or not name:
        raise CliError(f"{text!r} names no object: write KIND/NAME, such as {allowed[0].short}/orders")
    kind = find_kind(word)
    if kind not in allowed:
        wanted = " or ".join(f"{allowed_kind.short}/NAME" for allowed_kind in allowed)
        raise CliError(f"this command is not for a {kind.name}: write {wanted}")
    return Target(kind, require_name(name, f"the name of a {kind.name}"))


def require_name(name: str, what: str) -> str:
    """``name`` if Kubernetes can have an object of that name. Raises CliError."""
    if not can_exist(name):
        raise CliError(f"{name!r} is not {what}: use lower-case letters, digits, '-' and '.'")
    return name


def can_exist(name: str) -> bool:
    """Return whether Kubernetes can have an object of that name."""
    return _OBJECT_NAME.fullmatch(name) is not None and ".." not in name
