"""Random tests measure no time, and try the same cases on every machine.

On one that is busy with other tests, a slow case is no failure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.examples import ALL_CASES

TESTS = Path(__file__).parents[1]


def timed(tree: ast.Module) -> Iterator[int]:
    """Lines of settings that set a deadline, or that list health checks and keep the one for slow cases."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("settings"):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if given.get("deadline", "None") != "None" or "too_slow" not in given.get(
                "suppress_health_check", "too_slow"
            ):
                yield node.lineno


def test_a_random_test_may_be_slow() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_the_same_random_cases_are_tried_everywhere_but_in_a_soak() -> None:
    assert settings().derandomize is not ALL_CASES


def test_no_settings_measure_time() -> None:
    timed_lines = {
        str(path.relative_to(TESTS)): list(timed(ast.parse(path.read_text()))) for path in TESTS.rglob("*.py")
    }
    assert {path: lines for path, lines in timed_lines.items() if lines} == {}


def test_the_rule_sees_what_it_forbids() -> None:
    text = """
a = settings(deadline=500)
b = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
c = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
"""
    assert list(timed(ast.parse(text))) == [2, 3]
