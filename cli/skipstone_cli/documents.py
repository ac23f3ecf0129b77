"""YAML as kubectl reads it. Pure."""

from __future__ import annotations

import yaml


class DocumentLoader(yaml.SafeLoader):
    """Reads what looks like a date as text, as kubectl does: a namespace may be called ``2026-01-01``."""


DocumentLoader.yaml_implicit_resolvers = {
    first: [one for one in found if one[0] != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
