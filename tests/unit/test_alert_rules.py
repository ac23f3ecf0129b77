"""Alerts as Prometheus itself evaluates them: each fires when it should, and not when it should not.

`tests/unit/alerts` has one file of unit tests for each alert, in promtool's form, with all labels and texts of what
fires. Runs in `make soak-operability` only: promtool is unpacked from Debian's package.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.toolchain import build_tools
from tests.prometheus import find_program
from tests.unit.test_chart_alerts import RULES
from tests.unit.test_chart_rendered import objects, render

CASES = Path(__file__).resolve().parent / "alerts"
pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules of the chart as a file of Prometheus."""
    (found,) = objects(render(build_tools(["helm"])["helm"], *RULES), "PrometheusRule")
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump(found["spec"]))
    return path


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [find_program("promtool"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def run_cases(name: str, rules: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The cases of one alert, on a copy of the rules."""
    (folder / "rules.yaml").write_text(rules.read_text())
    case = folder / name
    case.write_text((CASES / name).read_text())
    return promtool("test", "rules", case)


def expectations(name: str) -> list[dict[str, Any]]:
    found = yaml.safe_load((CASES / name).read_text())
    return [each for test in found["tests"] for each in test["alert_rule_test"]]


FILES = sorted(path.name for path in CASES.glob("*.yaml"))


def test_promtool_takes_the_rules(rules: Path) -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", rules)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_cases_in_which_it_fires_and_in_which_it_does_not(rules: Path) -> None:
    alerts = {rule["alert"] for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]}
    assert {f"{name}.yaml" for name in alerts} == set(FILES)
    for name in FILES:
        asked = expectations(name)
        assert {each["alertname"] for each in asked} == {name.removesuffix(".yaml")}
        assert {bool(each["exp_alerts"]) for each in asked} == {True, False}


@pytest.mark.parametrize("name", FILES)
def test_an_alert_fires_when_it_should_and_with_its_texts(name: str, rules: Path, tmp_path: Path) -> None:
    done = run_cases(name, rules, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("minutes", [-1, 1])
def test_the_cases_notice_a_pending_time_that_is_a_minute_off(rules: Path, tmp_path: Path, minutes: int) -> None:
    changed = yaml.safe_load(rules.read_text())
    waiting = [rule for group in changed["groups"] for rule in group["rules"] if "for" in rule]
    assert len(waiting) > 4
    for rule in waiting:
        rule["for"] = f"{int(rule['for'].removesuffix('m')) + minutes}m"
    other = tmp_path / "changed.yaml"
    other.write_text(yaml.safe_dump(changed))
    names = [f"{rule['alert']}.yaml" for rule in waiting]
    assert [name for name in names if run_cases(name, other, tmp_path).returncode == 0] == []
