"""Every class in the JVM that Skipstone knows is there, with every method that it calls, in the real JVM.

`make early-warning` runs the part on Spark against its newest pre-release, which has no runtime of Iceberg yet.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from skipstone.compat import catalyst, icebergjava, java, partitioning, physical
from skipstone.compat.java import DESCRIBED, JavaName, JavaObject, Jvm, ScalaName, class_named, type_named
from skipstone.compat.methods import values_at
from skipstone.compat.outlines import compiling


def is_named(one: object) -> bool:
    """Whether it names a class or a singleton."""
    return isinstance(one, JavaName | ScalaName)


SPARK = [kind for kind in DESCRIBED if kind.__module__ != icebergjava.__name__]
ICEBERG = [kind for kind in DESCRIBED if kind.__module__ == icebergjava.__name__]
NAMED = [one for module in (java, catalyst, partitioning, physical) for one in vars(module).values() if is_named(one)]
NAMED_BY_ICEBERG = {
    **{name: one.name for name, one in vars(icebergjava).items() if isinstance(one, JavaName)},
    **{one: one for one in (icebergjava.CHANGELOG, icebergjava.PATH_IDENTIFIER, *icebergjava.DATA_TABLES)},
}


@pytest.fixture(scope="module")
def jvm() -> Jvm:
    """The JVM of the tests, or a JVM of Spark alone where this module runs alone."""
    session: Jvm = SparkSession.builder.getOrCreate()._jvm
    return session


def methods(jvm: Jvm, name: str) -> set[tuple[str, int]]:
    """The public methods of a class, static ones and those of super classes included: names and argument counts.

    One round trip: the JVM writes all of them as one text.
    """
    handles, types = (java.class_named(jvm, f"java.lang.invoke.{one}") for one in ("MethodHandles", "MethodType"))
    as_text = types.methodType(type_named(jvm, "java.lang.String"), type_named(jvm, "[Ljava.lang.Object;"))
    shown = handles.publicLookup().findStatic(type_named(jvm, "java.util.Arrays"), "toString", as_text)
    text = str(shown.invokeWithArguments(java.java_list(jvm, [type_named(jvm, name).getMethods()])))
    listed = re.findall(r"[ .]([\w$]+)\(([^)]*)\)", text)
    return {(method, len([one for one in given.split(",") if one])) for method, given in listed}


def declared(kind: type) -> Iterator[tuple[str, int]]:
    """The methods that a type says its class has."""
    for base in kind.__mro__:
        for name, value in vars(base).items() if base in DESCRIBED else ():
            if inspect.isfunction(value) and not name.startswith("_"):
                yield name, len(inspect.signature(value).parameters) - 1


def missing(jvm: Jvm, kind: type) -> set[tuple[str, int]]:
    found = methods(jvm, DESCRIBED[kind])
    if type_named(jvm, DESCRIBED[kind]).isInterface():
        found |= methods(jvm, "java.lang.Object")
    return {*declared(kind)} - found


def test_the_classes_of_spark_have_the_methods_that_are_called(jvm: Jvm) -> None:
    assert len(SPARK) > 30
    assert {kind.__name__: found for kind in SPARK if (found := missing(jvm, kind))} == {}


def test_every_class_of_spark_is_there(jvm: Jvm) -> None:
    assert len(NAMED) > 10
    for one in NAMED:
        assert type_named(jvm, f"{one.name}$" if isinstance(one, ScalaName) else one.name), one.name
    for package, names in catalyst.NODES.items():
        for name in names:
            assert str(type_named(jvm, f"{package}.{name}").getSimpleName()) == name
    for join in catalyst.JOIN_TYPES:
        assert str(java.object_named(jvm, f"{catalyst.JOIN_TYPE_PACKAGE}.{join}").toString()) == join


def test_every_rule_is_there_and_takes_a_plan(jvm: Jvm) -> None:
    for rule in catalyst.Rule:
        assert ("apply", 1) in methods(jvm, catalyst.optimizer_rule(jvm, rule).getClass().getName()), rule


def test_the_classes_of_iceberg_have_the_methods_that_are_called(jvm: Jvm) -> None:
    assert len(ICEBERG) > 10
    assert {kind.__name__: found for kind in ICEBERG if (found := missing(jvm, kind))} == {}


def test_every_class_of_iceberg_is_there(jvm: Jvm) -> None:
    assert len(NAMED_BY_ICEBERG) > 10
    for name in NAMED_BY_ICEBERG.values():
        assert type_named(jvm, name), name


def test_a_method_that_is_not_there_is_seen(jvm: Jvm, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        def length(self) -> int:
            return 0

        def noSuchMethod(self, one: int) -> int:
            return one

    monkeypatch.setitem(DESCRIBED, Wrong, "java.lang.String")
    assert missing(jvm, Wrong) == {("noSuchMethod", 1)}


@pytest.mark.parametrize(
    ("made", "arguments"),
    [(compiling.outliner, ("skipstone.", ("spark.wap.branch",))), (compiling.few_rows, (4096,))],
    ids=["outlines", "few rows"],
)
def test_classes_compile_or_are_done_without(
    jvm: Jvm, monkeypatch: pytest.MonkeyPatch, made: Any, arguments: tuple[Any, ...]
) -> None:
    assert made.__wrapped__(jvm, *arguments) is not None
    monkeypatch.setattr(compiling, "_COMPILER", "org.codehaus.janino.NoSuchCompiler")
    assert made.__wrapped__(jvm, *arguments) is None


def test_answers_of_any_length_arrive_as_they_are(jvm: Jvm) -> None:
    for text in ("", "short", "q" * 6_000, "long é☃ \U0001f600" * 5_000, "short again", "\U0001f600" * 12_001):
        java_text = class_named(jvm, "java.lang.StringBuilder")(text)
        assert values_at(jvm, java_text, ((JavaObject.toString,),)) == [text]
