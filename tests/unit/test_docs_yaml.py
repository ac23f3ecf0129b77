"""Every block of YAML in the documentation is taken by the operator's models, parts of a manifest in a whole one."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.kinds import parse

from tests.docs.blocks import ROOT, Block, blocks_of, pages

EVERYTHING = [block for page in pages() for block in blocks_of(page) if block.language == "yaml"]
WHOLE = [block for block in EVERYTHING if block.text.startswith("apiVersion:")]
ORDERS = ROOT / "examples" / "orders"
#: Where parts belong: page, how the block begins, the manifest that it goes into, and at which field below its spec.
PARTS = (
    ("docs/guide/indexes.md", "  columns: [tailnum]", "03-index", ()),
    ("docs/guide/loading.md", "    mapping:", "04-load", ("source",)),
    ("docs/guide/maintenance.md", "spec:", "02-table", ()),
    ("docs/guide/merging.md", "  source:\n    format: Json", "05-merge", ()),
    ("docs/guide/merging.md", "  sequenceBy: seq\n  targetSequence", "05-merge", ()),
    ("docs/guide/merging.md", "  sequenceBy: seq\n  whenMatched", "05-merge", ()),
    ("docs/guide/merging.md", "  set:", "05-merge", ("whenMatched", 1)),
    ("docs/guide/merging.md", "  whenNotMatchedBySource:", "05-merge", ()),
    ("docs/guide/planning.md", "spec:\n  catalog:", "01-warehouse", ()),
    ("docs/guide/planning.md", "spec:\n  planning:", "01-warehouse", ()),
    ("docs/guide/planning.md", "planning:", "01-warehouse", ()),
    ("docs/guide/storage.md", "spec:\n  storage:", "01-warehouse", ()),
    ("docs/guide/storage.md", "spec:\n  catalog: {type: Rest, ", "01-warehouse", ()),
    ("docs/guide/storage.md", "spec:\n  catalog:\n", "01-warehouse", ()),
    ("docs/guide/storage.md", "spec:\n  sourceLocations:", "01-warehouse", ()),
    ("docs/guide/warm-drivers.md", "spec:\n  warmDrivers:", "01-warehouse", ()),
    ("docs/operations.md", "maintenance:", "02-table", ()),
    ("docs/operations.md", "spec:\n  spark:", "01-warehouse", ()),
)
#: Of dbt, of the chart, of RBAC (tests/kube/test_cli.py gives these rights to somebody; a kept driver has those of the
#: chart), and of tests of manifests
#: (tests/unit/test_local_testing.py).
OTHERS = (
    ("docs/guide/testing.md", "steps:"),
    ("docs/guide/engines.md", "lake:"),
    ("docs/guide/report.md", "dashboard:"),
    ("docs/reference/cli.md", "rules:"),
    ("docs/guide/warm-drivers.md", "rules:"),
)


def place(block: Block) -> str:
    return f"{block.page}:{block.line}"


def refused(manifest: dict[str, Any]) -> object:
    """What the operator says of ``manifest``; None if it takes it."""
    resource = parse(manifest)
    return validate_spec(resource.kind, resource.spec)


@pytest.mark.parametrize("block", WHOLE, ids=place)
def test_a_whole_manifest_is_taken(block: Block) -> None:
    assert [refused(manifest) for manifest in yaml.safe_load_all(block.text) if refused(manifest)] == []


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part[0]}:{part[1].strip()[:30]}")
def test_a_part_is_taken_within_a_whole(part: tuple[str, str, str, tuple[str | int, ...]]) -> None:
    page, begins, base, path = part
    (block,) = [block for block in EVERYTHING if block.page == page and block.text.startswith(begins)]
    told = yaml.safe_load(block.text)
    *_, manifest = yaml.safe_load_all((ORDERS / f"{base}.yaml").read_text())
    at = manifest["spec"]
    for step in path:
        at = at[step]
    at.update(told.get("spec", told))
    assert refused(manifest) is None


def test_values_of_the_chart_are_those_that_it_has() -> None:
    (block,) = [block for block in EVERYTHING if block.page == "docs/guide/report.md"]
    values = yaml.safe_load((ROOT / "charts/skipstone/values.yaml").read_text())
    assert yaml.safe_load(block.text)["dashboard"].keys() <= values["dashboard"].keys()


def test_no_block_is_left_out() -> None:
    known = [*((page, begins) for page, begins, _, _ in PARTS), *OTHERS]
    left = [
        place(block)
        for block in EVERYTHING
        if block not in WHOLE
        and not any(block.page == page and block.text.startswith(begins) for page, begins in known)
    ]
    assert left == []
