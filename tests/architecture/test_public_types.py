"""What notebook users call is typed to the last argument, and what they install says that it is.

Types are followed from the public calls through every class of ours that they take or give. Types of other packages
are theirs: numpy says Any for the shape of an array.
"""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import skipstone
import skipstone.query
from skipstone.query.datasource import SkipstoneDataSource
from skipstone_local.lake import Lake

ROOT = Path(__file__).parents[2]
CALLS: dict[str, object] = {
    **{f"skipstone.{name}": getattr(skipstone, name) for name in skipstone.__all__},
    **{f"skipstone.query.{name}": getattr(skipstone.query, name) for name in skipstone.query.__all__},
    "SkipstoneDataSource": SkipstoneDataSource,
}
#: What `skipstone.open` gives is of a package that is imported when it is called.
ELSEWHERE = {"Lake": Lake}
TYPED = ("core/skipstone_core", "spark_apps/skipstone")


def parts(hint: Any) -> Iterator[Any]:
    """A type and all types that it is made of."""
    yield hint
    if get_origin(hint) is not np.ndarray:
        for inner in get_args(hint):
            for part in inner if isinstance(inner, list) else [inner]:
                yield from parts(part)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What of a class is public and has types: its fields, its methods and the functions of its properties."""
    yield kind.__qualname__, kind
    for name, value in vars(kind).items():
        if name == "__init__" or not name.startswith("_"):
            function = getattr(value, "fget", None) or getattr(value, "func", None) or inspect.unwrap(value)
            if inspect.isfunction(function) and function.__module__.startswith("skipstone"):
                yield f"{kind.__qualname__}.{name}", function


def signatures(called: Any, name: str, seen: set[type]) -> Iterator[tuple[str, Any]]:
    """Every type in the signature of a call or in those of a class, and in the classes of ours that they name."""
    if isinstance(called, type) and called in seen:
        return
    seen |= {called} if isinstance(called, type) else set()
    for label, member in members(called) if isinstance(called, type) else [(name, called)]:
        for argument, hint in get_type_hints(member, localns=ELSEWHERE).items():
            if isinstance(member, type) and argument.startswith("_"):
                continue
            for part in parts(hint):
                yield f"{label}: {argument}", part
                if isinstance(part, type) and part.__module__.startswith("skipstone"):
                    yield from signatures(part, part.__qualname__, seen)


def untyped(called: Any, name: str, seen: set[type]) -> list[str]:
    return sorted({label for label, part in signatures(called, name, seen) if part is Any})


def test_no_public_signature_says_any() -> None:
    seen: set[type] = set()
    assert [label for name, call in CALLS.items() for label in untyped(call, name, seen)] == []
    assert len(seen) > 50


def test_every_argument_of_a_public_call_has_a_type() -> None:
    functions = {name: call for name, call in CALLS.items() if inspect.isfunction(call)}
    assert len(functions) >= 7
    for name, call in functions.items():
        assert {*inspect.signature(call).parameters, "return"} == get_type_hints(call, localns=ELSEWHERE).keys(), name


def test_the_rule_sees_what_it_forbids() -> None:
    class Deep:
        def method(self, inner: dict[str, list[Any]]) -> None: ...

    Deep.method.__module__ = Deep.__module__ = "skipstone.deep"

    def call(deep: Deep | None) -> None: ...

    call.__annotations__ = {"deep": Deep | None}
    Deep.method.__annotations__ = {"inner": dict[str, list[Any]]}
    assert untyped(call, "call", set()) == [f"{Deep.__qualname__}.method: inner"]


@pytest.mark.parametrize("package", TYPED)
def test_a_package_says_that_it_is_typed_and_takes_that_along(package: str) -> None:
    """Wheels leave out what git ignores, and images copy the folders of packages but for what is listed."""
    marker = ROOT / package / "py.typed"
    assert marker.is_file()
    ignored = subprocess.run(["git", "check-ignore", "--quiet", marker], cwd=ROOT, check=False)
    assert ignored.returncode != 0
    copies = (ROOT / "spark_apps" / "Dockerfile").read_text()
    assert f"COPY {package} " in copies
    assert "py.typed" not in (ROOT / "spark_apps" / "Dockerfile.dockerignore").read_text()
