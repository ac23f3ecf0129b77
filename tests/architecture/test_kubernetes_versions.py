"""The docs, the chart and the operator name the releases of Kubernetes that tests can run against, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.cluster.prerequisites import read_version
from tests.cluster.toolchain import read_releases

ROOT = Path(__file__).parents[2]
PINNED = sorted((version.removeprefix("v") for version in read_releases().values()), key=read_version)
OLDEST = PINNED[0].rpartition(".")[0]
PROMISE = re.compile(r"Kubernetes (1\.\d+)(?:\.\d+)?")


def texts() -> list[Path]:
    """Everything that tells somebody which Kubernetes Skipstone needs."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").rglob("*.*")]
    return [path for path in [*paths, *(ROOT / "operator").rglob("*.py")] if path.is_file()]


def test_the_guide_says_what_was_checked_the_release_of_the_cluster_in_any_case() -> None:
    guide = " ".join((ROOT / "docs/operations.md").read_text().split())
    (listed,) = re.findall(r"is checked with Kubernetes ([\d., and]+)\. ", guide)
    checked = re.findall(r"[\d.]+", listed)
    assert read_releases()[""].removeprefix("v") in checked
    assert [version for version in checked if version not in PINNED] == []


def test_a_folder_pins_the_release_that_it_is_named_after() -> None:
    others = {name: version for name, version in read_releases().items() if name}
    assert len(others) >= 2
    assert [name for name, version in others.items() if not version.startswith(f"v{name}.")] == []


def test_the_chart_installs_on_the_oldest_release_that_is_checked_and_on_none_before() -> None:
    chart = yaml.safe_load((ROOT / "charts/skipstone/Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={PINNED[0]}-0"


def test_no_text_names_a_release_that_is_not_checked() -> None:
    checked = {version.rpartition(".")[0] for version in PINNED}
    named = {str(path.relative_to(ROOT)): set(PROMISE.findall(path.read_text())) for path in texts()}
    assert {name: releases - checked for name, releases in named.items() if releases - checked} == {}


def test_what_is_needed_at_least_is_the_oldest_release_that_is_checked() -> None:
    at_least = {
        (str(path.relative_to(ROOT)), release)
        for path in texts()
        for release in re.findall(r"Kubernetes (1\.\d+) or (?:newer|later)", path.read_text())
    }
    assert at_least
    assert {release for _, release in at_least} == {OLDEST}, at_least
