"""Write the CustomResourceDefinitions and the field reference, or check that the committed ones are current.

``python -m skipstone_operator.resources.publishing.crds [--check] DIR`` with DIR = the root of the repository:
``crds/``, the copies of the chart and of the local package, and the reference page lie below it. Generated files are
never edited by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from skipstone_operator.resources.common import MAX_RESOURCE_NAME, UNSEEN_STATUS
from skipstone_operator.resources.kinds import CATEGORY, GROUP, KINDS, VERSION, Kind
from skipstone_operator.resources.publishing.columns import PRINTER_COLUMNS, PrinterColumn
from skipstone_operator.resources.publishing.fieldreference import reference_page
from skipstone_operator.resources.publishing.openapi import Schema, object_schema, rule_schema
from skipstone_operator.resources.rules.markers import Doc, Rule

#: The API server keeps CRDs in etcd and kubectl keeps them in an annotation: stay far below both limits.
MAX_BYTES = 100_000
#: The copy that the local package enforces.
LOCAL_COPY = Path("local/skipstone_local/admission/definitions.json")
HEADER = "# Generated from the typed resources by `make generate`. Do not edit.\n"


def name_rule(kind: Kind[Any, Any]) -> Rule:
    """The rule for the names of objects of ``kind``."""
    why = "it becomes a label and a folder" if kind.max_name == MAX_RESOURCE_NAME else "its jobs are named after it"
    return Rule(
        rule=f"self.metadata.name.size() <= {kind.max_name}",
        message=f"metadata.name may have at most {kind.max_name} characters, since {why}: choose a shorter one",
        field_path=".metadata.name",
    )


def crd(kind: Kind[Any, Any]) -> Schema:
    """The CustomResourceDefinition of ``kind``."""
    names = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.singular,
        "shortNames": [kind.short_name],
        "categories": [CATEGORY],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [_version(kind)]},
    }


def _version(kind: Kind[Any, Any]) -> Schema:
    selectable = [{"jsonPath": f".{path}"} for path in kind.selectable]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        **({"selectableFields": selectable} if selectable else {}),
        "additionalPrinterColumns": [_column(column) for column in PRINTER_COLUMNS[kind.name]],
        "schema": {"openAPIV3Schema": root_schema(kind)},
    }


def root_schema(kind: Kind[Any, Any]) -> Schema:
    """The schema of a whole object of ``kind``."""
    return {
        "description": kind.text,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"{kind.name}."},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": object_schema(kind.spec, Doc("What is wanted."), defaults=True),
            "status": {
                **object_schema(kind.status, Doc("What is known. Written by the operator."), defaults=False),
                "default": UNSEEN_STATUS,
            },
        },
        "x-kubernetes-validations": [rule_schema(name_rule(kind))],
    }


def _column(column: PrinterColumn) -> Schema:
    schema: Schema = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.text,
    }
    return {**schema, "priority": 1} if column.wide else schema


def to_yaml(value: Schema) -> str:
    """The text of one manifest, stable between runs."""
    return HEADER + yaml.safe_dump(value, sort_keys=False, width=120, default_flow_style=False)


def to_json(value: list[Schema]) -> str:
    """The text of all manifests, which is read in a tenth of the time that YAML takes."""
    return json.dumps(value, indent=1) + "\n"


def chart_template(manifest: str) -> str:
    """The chart's copy of a CRD: switched by ``crds.enabled`` and kept on uninstall."""
    marked = manifest.replace("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n", 1)
    escaped = marked.replace("{{", '{{ "{{" }}')
    return f"{{{{- if .Values.crds.enabled }}}}\n{escaped}{{{{- end }}}}\n"


def generated_files(root: Path) -> Mapping[Path, str]:
    """Every generated file and its text; ``root`` is the root of the repository."""
    definitions = {kind.plural: crd(kind) for kind in KINDS.values()}
    manifests = {plural: to_yaml(definition) for plural, definition in definitions.items()}
    templates = root / "charts" / "skipstone" / "templates" / "crds"
    return {
        **{root / "crds" / f"{plural}.yaml": text for plural, text in manifests.items()},
        **{templates / f"{plural}.yaml": chart_template(text) for plural, text in manifests.items()},
        root / LOCAL_COPY: to_json(list(definitions.values())),
        root / "docs" / "reference" / "resources.md": reference_page(
            {name: root_schema(kind) for name, kind in KINDS.items()}
        ),
    }


def outdated(files: Mapping[Path, str]) -> list[Path]:
    """Files that are missing or differ from what would be generated."""
    return [path for path, text in files.items() if not path.exists() or path.read_text() != text]


def write(files: Mapping[Path, str]) -> None:
    """Write every file; raises ValueError when one outgrew its limit."""
    for path, text in files.items():
        if path.suffix == ".yaml" and len(text.encode()) >= MAX_BYTES:
            raise ValueError(f"{path.name} has {len(text.encode())} bytes, the limit is {MAX_BYTES}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(arguments: Sequence[str]) -> int:
    """Entry point; 1 when ``--check`` found a file that is not current."""
    parser = argparse.ArgumentParser(description="Write or check the generated CRDs and the field reference.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a file is not current")
    parser.add_argument("root", type=Path, help="the root of the repository")
    options = parser.parse_args(arguments)
    files = generated_files(options.root.resolve())
    if not options.check:
        write(files)
        return 0
    stale = outdated(files)
    for path in stale:
        sys.stderr.write(f"{path} is not current: run `make generate`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
