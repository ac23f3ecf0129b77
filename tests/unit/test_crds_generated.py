"""The generated files: current, small enough, complete in text and silent about what has no engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from skipstone_operator.resources.kinds import KINDS, Kind
from skipstone_operator.resources.publishing.crds import MAX_BYTES, crd, generated_files, main, root_schema
from skipstone_operator.resources.publishing.fieldreference import reference_page, walk

REPOSITORY = Path(__file__).resolve().parents[2]
KIND_LIST = list(KINDS.values())


def schemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema with its path, below and including ``schema``."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from schemas(schema[word], f"{path}[]")


def halves(kind: Kind[Any, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for half in ("spec", "status"):
        yield from schemas(root_schema(kind)["properties"][half], half)


def test_committed_files_are_current() -> None:
    assert main(["--check", str(REPOSITORY)]) == 0


def test_check_names_a_file_that_is_not_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    (tmp_path / "crds" / "tables.yaml").write_text("edited")
    assert main(["--check", str(tmp_path)]) == 1
    assert "tables.yaml is not current: run `make generate`" in capsys.readouterr().err


def test_every_manifest_is_far_below_the_limits_of_etcd_and_kubectl() -> None:
    sizes = {
        path.name: len(text.encode()) for path, text in generated_files(REPOSITORY).items() if path.suffix == ".yaml"
    }
    assert max(sizes.values()) < MAX_BYTES, sizes


def test_chart_holds_the_same_crds_marked_to_be_kept() -> None:
    for kind in KIND_LIST:
        template = (REPOSITORY / "charts/skipstone/templates/crds" / f"{kind.plural}.yaml").read_text()
        body = template.split("\n", 1)[1].rsplit("{{- end }}", 1)[0]
        found = yaml.safe_load(body)
        assert found["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert found == crd(kind)


@pytest.mark.parametrize("kind", KIND_LIST, ids=lambda kind: kind.name)
def test_every_field_has_a_text(kind: Kind[Any, Any]) -> None:
    assert [path for path, schema in halves(kind) if not schema.get("description", "").endswith(".")] == []


@pytest.mark.parametrize("kind", KIND_LIST, ids=lambda kind: kind.name)
def test_every_string_list_and_map_is_bounded(kind: Kind[Any, Any]) -> None:
    bounds = {"array": "maxItems", "string": "maxLength"}
    unbounded = [
        path
        for path, schema in halves(kind)
        if schema["type"] in bounds and not {bounds[schema["type"]], "enum", "format"} & set(schema)
    ]
    unbounded += [path for path, s in halves(kind) if "additionalProperties" in s and "maxProperties" not in s]
    assert unbounded == []


@pytest.mark.parametrize("kind", KIND_LIST, ids=lambda kind: kind.name)
def test_every_rule_names_its_field_and_has_a_sentence(kind: Kind[Any, Any]) -> None:
    for path, schema in halves(kind):
        for rule in schema.get("x-kubernetes-validations", ()):
            named = rule.get("fieldPath", path).rpartition(".")[2].rstrip("[]")
            assert named in rule["message"] or path.rstrip("[]").rpartition(".")[2] in rule["message"], rule
            assert len(rule["message"]) < 400


def test_there_are_no_kinds_without_an_engine() -> None:
    assert set(KINDS) == {"Warehouse", "Table", "SecondaryIndex", "LoadJob", "MergeJob", "MergeSchedule"}


def test_reference_page_has_a_row_for_every_field() -> None:
    page = reference_page({kind.name: root_schema(kind) for kind in KIND_LIST})
    for kind in KIND_LIST:
        for half in ("spec", "status"):
            for path, _, _ in walk(root_schema(kind)["properties"][half]):
                assert f"| `{path}` |" in page
