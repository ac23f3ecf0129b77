"""Objects as YAML and JSON, as ``kubectl get -o`` prints them: without managedFields, fields sorted by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml
from skipstone_cli.reading import JsonObject

TEXT = "tag:yaml.org,2002:str"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write an object again where it stands twice."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """As Go's YAML does: double quotes for what would be read as something else than text."""
    plain = dumper.resolve(yaml.ScalarNode, text, (True, False)) == TEXT  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(TEXT, text, style="|" if "\n" in text else None if plain else '"')


_Dumper.add_representer(str, _represent_text)


def as_document(objects: Sequence[JsonObject], *, listed: bool) -> JsonObject:
    """One object as it is, several, or those of a list, as a List."""
    plain = [_without_managed_fields(obj) for obj in objects]
    if not listed:
        return plain[0]
    return {"apiVersion": "v1", "kind": "List", "items": plain, "metadata": {"resourceVersion": ""}}


def to_yaml(document: JsonObject) -> str:
    """The document as YAML."""
    return yaml.dump(document, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=1 << 20)


def to_json(document: JsonObject) -> str:
    """The document as JSON."""
    return json.dumps(document, indent=4, sort_keys=True, ensure_ascii=False) + "\n"


def _without_managed_fields(obj: JsonObject) -> JsonObject:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}
