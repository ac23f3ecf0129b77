"""YAML as kubectl reads it. Pure."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

TEXT, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
#: Values that JSON has.
OF_JSON = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))


class DocumentLoader(yaml.SafeLoader):
    """Reads what looks like a date as text, as kubectl does: a namespace may be called ``2026-01-01``."""


DocumentLoader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class ManifestLoader(DocumentLoader):
    """Reads what JSON can hold, with texts as names; all else is an error of YAML.

    A mapping that has a name twice is refused. kubectl drops the first of the two: a clause of a merge, say.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """The mapping as it is written. Raises ComposerError."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ComposerError(None, None, "a name is a list or a mapping: write a text", key.start_mark)
            if key.value in seen:
                raise ComposerError(None, None, f"{key.value!r} is there twice: leave one out", key.start_mark)
            seen.add(key.value)
            if key.tag != MERGE:
                key.tag = TEXT
        return node

    def construct_document(self, node: yaml.Node) -> Any:
        """The value of a document. Raises ConstructorError."""
        try:
            return super().construct_document(node)
        except ValueError as error:
            raise ConstructorError(None, None, str(error), node.start_mark) from error


ManifestLoader.yaml_constructors = {
    tag: build for tag, build in DocumentLoader.yaml_constructors.items() if tag is None or tag in OF_JSON
}
