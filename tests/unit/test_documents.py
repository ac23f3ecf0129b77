"""YAML of manifests and of tests: what it means, and what is refused in one sentence."""

from __future__ import annotations

import json

import pytest
import yaml
from skipstone_cli.documents import ManifestLoader
from skipstone_cli.errors import CliError
from skipstone_local.client.manifests import parse_manifests


def test_documents_are_what_json_can_hold() -> None:
    text = "{at: 2026-01-01, 1: a, true: b, 2026-01-02: c, on: d, list: [1, 2.5, null, off], base: &b {x: 1, y: 2}}"
    found = yaml.load(text, Loader=ManifestLoader)
    assert json.loads(json.dumps(found)) == found
    assert found["at"] == "2026-01-01"
    assert {"1", "true", "2026-01-02", "on"} <= found.keys()


def test_what_is_merged_may_be_overridden() -> None:
    text = "base: &b {x: 1, y: 2}\nother: &o {<<: *b, x: 3}\nthird: {<<: *o, y: 4}\nagain: *o"
    found = yaml.load(text, Loader=ManifestLoader)
    assert (found["other"], found["third"]) == ({"x": 3, "y": 2}, {"x": 3, "y": 4})
    assert found["again"] == found["other"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{x: 1, x: 2}", "'x' is there twice: leave one out"),
        ("{1: a, '1': b}", "'1' is there twice"),
        ("{[a]: b}", "a name is a list or a mapping"),
        ("!!int foo", "invalid literal for int"),
        ("!!timestamp foo", "timestamp"),
        ("!!binary aGk=", "binary"),
        ("!!set {a, b}", "set"),
        ("!!python/object/apply:os.getcwd []", "python/object"),
        ("[" * 3000, "is not YAML"),
    ],
)
def test_what_json_cannot_hold_is_refused(value: str, says: str) -> None:
    text = f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {value}}}"
    with pytest.raises(CliError, match=says) as refused:
        list(parse_manifests(text, "a.yaml"))
    assert str(refused.value).startswith("a.yaml is not YAML: ")
