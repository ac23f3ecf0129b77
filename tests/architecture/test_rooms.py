"""The rooms: every folder is in a table of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "operator/skipstone_operator": ROOT / "operator" / "skipstone_operator",
    "spark_apps/skipstone": ROOT / "spark_apps" / "skipstone",
    "cli/skipstone_cli": ROOT / "cli" / "skipstone_cli",
    "local/skipstone_local": ROOT / "local" / "skipstone_local",
    "report/skipstone_report": ROOT / "report" / "skipstone_report",
    "core/skipstone_core": ROOT / "core" / "skipstone_core",
}


def rooms(package: Path) -> list[str]:
    """The folders of ``package`` by their paths in it."""
    return sorted({str(path.parent.relative_to(package)) for path in package.rglob("*.py")} - {"."})


def listed(page: Path, package: str) -> list[str]:
    """The rooms in the table of ``package``."""
    _, _, table = page.read_text().partition(f"| Room of `{package}/` |")
    first_cells = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()[2:]]
    return [room for cell in first_cells for room in re.findall(r"`([a-z_/]+)/`", cell)]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_is_in_the_table_and_every_row_is_a_room(package: str) -> None:
    outer, inner = listed(ROOT / "ARCHITECTURE.md", package), listed(ROOT / "docs" / "rooms.md", package)
    assert sorted(outer + inner) == rooms(PACKAGES[package])
    assert [room for room in outer if "/" in room] + [room for room in inner if "/" not in room] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_is_a_package(package: str) -> None:
    assert [room for room in rooms(PACKAGES[package]) if not (PACKAGES[package] / room / "__init__.py").exists()] == []


def test_spark_frames_reach_kernels_by_one_helper() -> None:
    """``mapInArrow`` finds no column whose name has a dot or a backtick."""
    package = PACKAGES["spark_apps/skipstone"]
    callers = [path.name for path in package.rglob("*.py") if re.search(r"\.mapIn(Arrow|Pandas)\(\w", path.read_text())]
    assert callers == ["mapping.py"]
