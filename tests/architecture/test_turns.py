"""What `make test` leaves to other commits has its turn in one of them; what must hold after each is never left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import examples
from tests.turns import ALWAYS, ROTAS, is_shared, without_turn

ROOT = Path(__file__).parents[2]
COMMITS = [f"{number:040x}" for number in range(1, 200)]
RESTING = [module for parts in ROTAS.values() for part in parts for module in part]


def functions_of(module: str) -> list[str]:
    tree = ast.parse((ROOT / module).read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def nodes(*folders: str) -> Iterator[str]:
    """Each test of the folders, with eight cases."""
    for folder in folders:
        for path in sorted((ROOT / folder).glob("test_*.py")):
            module = f"{folder}/{path.name}"
            yield from (f"{module}::{test}[{case}]" for test in functions_of(module) for case in range(8))


def test_each_listed_test_exists() -> None:
    for name in (*RESTING, *(name for names in ALWAYS.values() for name in names)):
        module, _, test = name.partition("::")
        assert not test or test in functions_of(module), name
        assert functions_of(module), name


def test_a_module_has_one_place() -> None:
    assert len(RESTING) == len(set(RESTING))
    always = {name.partition("::")[0] for names in ALWAYS.values() for name in names}
    assert always.isdisjoint(RESTING)


def test_each_case_has_its_turn_in_some_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(nodes("tests/e2e", "tests/kube", "tests/local"))
    waiting, shares = set(names), []
    for commit in COMMITS:
        monkeypatch.setattr(examples, "_commit", lambda commit=commit: commit)
        left = without_turn(names)
        waiting -= {name for place, name in enumerate(names) if place not in left}
        shares.append(1 - len(left) / len(names))
    assert waiting == set()
    assert max(shares) < 2 * min(shares), "the share of a commit depends on the commit"


def test_each_commit_takes_a_test_of_every_module_and_all_of_what_always_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(nodes("tests/e2e", "tests/kube", "tests/local", "tests/spark"))
    modules = set(filter(is_shared, (name.partition("::")[0] for name in names))) - set(RESTING)
    always = {name for group in ALWAYS.values() for name in group}
    for commit in COMMITS[:5]:
        monkeypatch.setattr(examples, "_commit", lambda commit=commit: commit)
        left = without_turn(names)
        taken = {name.partition("[")[0] for place, name in enumerate(names) if place not in left}
        assert modules <= {test.partition("::")[0] for test in taken}
        for name in always:
            found = {name} if "::" in name else {f"{name}::{test}" for test in functions_of(name)}
            assert found <= taken


def test_without_git_there_is_a_share_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "_commit", lambda: "0")
    assert without_turn([f"tests/spark/test_a.py::test_{name}" for name in "abc"]) != set()
