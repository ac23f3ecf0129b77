"""The objects that arguments name: ``KIND NAME…``, ``KIND/NAME…``, ``KIND,KIND``, or the manifests of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skipstone_cli.errors import CliError, NotFound
from skipstone_cli.kinds import require_name
from skipstone_cli.reading import name_of, namespace_of, text_of

from skipstone_local.client.manifests import Manifest
from skipstone_local.client.objects import Objects
from skipstone_local.client.resources import Resource


@dataclass(frozen=True)
class Named:
    """Objects of one kind: one of that name, or all if it is empty. ``namespace``: empty for all of them."""

    resource: Resource
    namespace: str
    name: str = ""


def parse_names(objects: Objects, words: Sequence[str], namespace: str) -> list[Named]:
    """Return the objects that the words name. Raises CliError for words that name nothing, or mix both forms."""
    if not words:
        raise CliError("name what is meant: KIND, KIND NAME or KIND/NAME, such as tbl/orders")
    if any("/" in word for word in words):
        return [_pair(objects, word, namespace) for word in words]
    kinds, names = words[0], words[1:]
    resources = [resource for word in kinds.split(",") if word for resource in objects.resources.find(word)]
    if not names:
        return [Named(resource, _place(resource, namespace)) for resource in resources]
    return [
        Named(resource, _place(resource, namespace), require_name(name, f"the name of a {resource.kind}"))
        for resource in resources
        for name in names
    ]


def named_by(objects: Objects, manifests: Sequence[Manifest]) -> list[Named]:
    """The objects of manifests. Raises CliError for kinds that are not served."""
    named = []
    for manifest in manifests:
        kind = objects.resources.find_kind(text_of(manifest.body, "apiVersion"), text_of(manifest.body, "kind"))
        namespace = namespace_of(manifest.body) or objects.namespace
        named.append(Named(kind, _place(kind, namespace), name_of(manifest.body)))
    return named


def missing(objects: Objects, named: Named) -> NotFound:
    """The error for an object that does not exist."""
    where = f" in namespace {named.namespace}" if named.namespace else ""
    other = f" --namespace {named.namespace}" if named.namespace else ""
    return NotFound(
        f"there is no {named.resource.kind} {named.name}{where}: see "
        f"'skipstone local get {named.resource.plural}{other}{objects.root}'"
    )


def _pair(objects: Objects, word: str, namespace: str) -> Named:
    kind, _, name = word.partition("/")
    if not kind or not name:
        raise CliError(f"{word!r} names no object: write KIND/NAME, such as tbl/orders, and no other form beside it")
    (resource, *others) = objects.resources.find(kind)
    if others:
        raise CliError(f"{kind!r} names several kinds: write the kind of {name!r}")
    return Named(resource, _place(resource, namespace), require_name(name, f"the name of a {resource.kind}"))


def _place(resource: Resource, namespace: str) -> str:
    return namespace if resource.is_namespaced else ""
