"""In which form objects are shown: whole, their metadata alone, or as rows of a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from skipstone_local.server.answers.refusals import Refusal
from skipstone_local.server.kinds.events import to_served
from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.store import JsonObject

META = "meta.k8s.io/v1"
ANY = ("application/json", "application/*", "*/*", "")


@dataclass(frozen=True)
class Form:
    """How to show objects of a kind. ``form``: Table, PartialObjectMetadata or "" for whole objects.

    ``included``: what rows of a table hold of their objects: Metadata, Object or None.
    """

    kind: ServedKind
    form: str = ""
    included: str = "Metadata"

    def one(self, obj: JsonObject) -> JsonObject:
        """One object."""
        if self.form == "Table":
            return self.table([obj], {"resourceVersion": obj["metadata"]["resourceVersion"]})
        return partial(obj) if self.form else to_served(self.kind, obj)

    def whole(self, obj: JsonObject) -> JsonObject:
        """One object, all of it."""
        return to_served(self.kind, obj)

    def many(self, objects: Iterable[JsonObject], metadata: JsonObject) -> JsonObject:
        """A list of objects; ``metadata`` is that of the list."""
        if self.form == "Table":
            return self.table(objects, metadata)
        if self.form:
            items = [partial(obj) for obj in objects]
            return {"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": metadata, "items": items}
        items = [to_served(self.kind, obj) for obj in objects]
        return {
            "apiVersion": self.kind.api_version, "kind": f"{self.kind.name}List", "metadata": metadata, "items": items,
        }  # fmt: skip

    def table(self, objects: Iterable[JsonObject], metadata: JsonObject, *, headed: bool = True) -> JsonObject:
        """A table with a row for each object; ``headed``: with the definitions of its columns."""
        now = datetime.now(UTC)
        rows = [self._row(obj, now) for obj in objects]
        columns = [column.definition() for column in self.kind.columns] if headed else None
        return {"kind": "Table", "apiVersion": META, "metadata": metadata, "columnDefinitions": columns, "rows": rows}

    def _row(self, obj: JsonObject, now: datetime) -> JsonObject:
        row: JsonObject = {"cells": [column.cell(obj, now) for column in self.kind.columns]}
        if self.included == "Object":
            row["object"] = to_served(self.kind, obj)
        elif self.included != "None":
            row["object"] = partial(obj)
        return row


def partial(obj: JsonObject) -> JsonObject:
    """The metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": obj["metadata"]}


def choose_form(kind: ServedKind, accept: str, query: Mapping[str, str]) -> Form:
    """The first form that a request accepts. Raises Refusal when there is none."""
    for media in accept.split(","):
        name, *parameters = (part.strip() for part in media.split(";"))
        wanted = dict(part.partition("=")[::2] for part in parameters)
        form = re.sub("List$", "", wanted.get("as", ""))
        if name.lower() not in ANY or (form and wanted.get("g") != "meta.k8s.io"):
            continue
        if form in ("", "Table", "PartialObjectMetadata"):
            return Form(kind, form, query.get("includeObject") or "Metadata")
    raise Refusal(
        406, "NotAcceptable", "only the following media types are accepted: application/json, application/yaml"
    )
