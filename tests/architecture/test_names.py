"""A name means one thing wherever it can be imported.

The planes and the command line never meet, but all see the core.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "skipstone_core"
PLANES = {
    "operator": (CORE, ROOT / "report" / "skipstone_report", ROOT / "operator" / "skipstone_operator"),
    "data plane": (CORE, ROOT / "spark_apps" / "skipstone"),
    "command line": (CORE, ROOT / "cli" / "skipstone_cli", ROOT / "local" / "skipstone_local"),
}


@pytest.mark.parametrize("plane", PLANES)
def test_no_two_public_classes_share_a_name(plane: str) -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in (path for package in PLANES[plane] for path in sorted(package.rglob("*.py"))):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert len(homes) > 100
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
