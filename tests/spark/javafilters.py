"""Iceberg's Java library as the judge of filters and scans: classes compiled in Spark's JVM do much in one call.

Their sources, in `java/`, are Java that Janino compiles: no generics, no lambdas.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

_SOURCES = Path(__file__).parent / "java"


class JavaClass:
    """A class of `java/` with static methods of texts and booleans; the one before it is known to it."""

    def __init__(self, spark: SparkSession, name: str, before: JavaClass | None = None) -> None:
        self._jvm: Any = spark._jvm
        self._gateway = spark.sparkContext._gateway
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        context = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        compiler.setParentClassLoader(before.loader if before else context)
        compiler.cook((_SOURCES / f"{name}.java").read_text())
        self.loader = compiler.getClassLoader()
        self._class = self.loader.loadClass(name)

    def call(self, name: str, *arguments: str | bool) -> str:
        """What the method answers."""
        lang = self._jvm.java.lang
        text, boolean = lang.Class.forName("java.lang.String"), lang.Class.forName("java.lang.Boolean")
        kinds = [boolean.getField("TYPE").get(None) if isinstance(each, bool) else text for each in arguments]
        method = self._class.getMethod(name, self._array(lang.Class, kinds))
        return str(method.invoke(None, self._array(lang.Object, [*arguments])))

    def _array(self, kind: Any, items: list[Any]) -> Any:
        array = self._gateway.new_array(kind, len(items))  # type: ignore[union-attr]
        for place, item in enumerate(items):
            array[place] = item
        return array


class Verdict(NamedTuple):
    """``written``: the filter as Java writes it. ``kept``: for each row whether it passes, None if Java refuses."""

    written: Any
    kept: list[bool] | None


class JavaJudge:
    """Judges rows by Iceberg's own Evaluator."""

    def __init__(self, spark: SparkSession) -> None:
        self.java = JavaClass(spark, "Judge")

    def judge(self, schema: Any, tree: Any, rows: list[list[str | None]], *, case_sensitive: bool) -> Verdict:
        """Judge rows of texts; all three are JSON."""
        told = self.java.call("judge", json.dumps(schema), json.dumps(tree), json.dumps(rows), case_sensitive)
        if told.startswith("R"):
            return Verdict(None, None)
        written, _, verdicts = told.rpartition("\n")
        return Verdict(json.loads(written), [letter == "T" for letter in verdicts])


class JavaFile(NamedTuple):
    """How Java sees a file for a filter: ``passing`` rows of ``rows``, and those that pass each part of it."""

    path: str
    is_planned: bool
    rows: int
    passing: int
    passing_parts: tuple[int, ...]


class JavaScan(NamedTuple):
    """A scan as Java plans it. ``selecting``: for each part, whether Java trusts the list for it and tests no row."""

    selecting: tuple[bool, ...]
    files: list[JavaFile]


class JavaPlanner:
    """Makes tables of files without content, and plans scans of them as Iceberg's own clients do."""

    def __init__(self, spark: SparkSession) -> None:
        self.java = JavaClass(spark, "PlannedTables", JavaJudge(spark).java)

    def build(self, location: str, version: int, schema: Any, spec: Any, steps: Any) -> str:
        """Make a table of a format version; give where its metadata is."""
        return self.java.call("build", location, str(version), *map(json.dumps, (schema, spec, steps)))

    def plan(self, location: str, parts: list[Any], *, case_sensitive: bool) -> JavaScan | None:
        """Plan a scan for a conjunction of filters; None when Java refuses it."""
        told = self.java.call("plan", location, json.dumps(parts), case_sensitive)
        if told.startswith("R"):
            return None
        selecting, *lines = told.split("\n")
        return JavaScan(tuple(letter == "T" for letter in selecting), [_file(line) for line in lines])


def _file(line: str) -> JavaFile:
    path, planned, rows, passing, *parts = line.rsplit(" ", maxsplit=line.count(" "))
    return JavaFile(path, planned == "1", int(rows), int(passing), tuple(map(int, parts)))
