"""Compiles the classes beside this module in the JVM of a session, by the compiler that Spark's generated code needs.

Walking a plan from Python takes a round trip for each node, and the JSON that Catalyst writes of it takes many. Janino
is a part of every Spark; a name that the JVM does not have fails when the class is compiled. Must not decide anything.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Protocol, Required, TypedDict, cast

from py4j.protocol import Py4JError

from skipstone.compat.catalyst import Dataset, JavaSession, LocalRelation, QueryExecution
from skipstone.compat.java import (
    PIECE,
    JavaObject,
    Jvm,
    StringBuilder,
    class_named,
    java_list,
    text_in_pieces,
    type_named,
)

logger = logging.getLogger("skipstone.query")

_COMPILER, _ARRAYS = "org.codehaus.janino.SimpleCompiler", "java.lang.reflect.Array"
_OUTLINES, _FEW_ROWS = "PlanOutline", "FewRows"


class RelationOutline(TypedDict, total=False):
    """A relation of a query. ``kind``: the class of its table; a table of Iceberg's has the others.

    ``table_kind``: the class of Iceberg's table. ``location``: of its metadata file. ``asked``: the columns that a
    condition may be about; ``has_float``: whether one of them is a float, or holds one.
    """

    kind: Required[str]
    table_kind: str
    name: str
    catalog: str | None
    uuid: str
    location: str
    snapshot_id: int | None
    asked: list[str]
    has_float: bool


class QueryOutline(TypedDict):
    """A query. ``nodes``: names of the nodes of its plans, those inside expressions too."""

    is_streaming: bool
    nodes: list[str]
    relations: list[RelationOutline]


class GivenSettings(TypedDict):
    """Settings of a session, and how many tasks it runs at a time."""

    settings: dict[str, str]
    parallelism: int


class Outliner(JavaObject, Protocol):
    """The class that is compiled."""

    def copied(self, session: JavaSession, dataset: Dataset) -> QueryExecution: ...
    def enter(self, session: JavaSession) -> JavaSession | None: ...
    def leave(self, before: JavaSession | None) -> None: ...
    def outline(self, session: JavaSession, execution: QueryExecution) -> str | StringBuilder: ...
    def settings(self, session: JavaSession) -> str | StringBuilder: ...


class FewRows(JavaObject, Protocol):
    """The class that takes rows into plans, and runs plans over few of them."""

    def local(self, session: JavaSession, stream: bytes, schema: str, count: int) -> LocalRelation | None: ...
    def evaluated(self, session: JavaSession, dataset: Dataset) -> Dataset | None: ...


@lru_cache(maxsize=1)
def outliner(jvm: Jvm, prefix: str, others: tuple[str, ...]) -> Outliner | None:
    """The class that outlines queries, once for a JVM; None where it cannot be compiled, as in a JVM without Iceberg.

    ``prefix``: how the names of the settings begin that it gives; ``others``: more names of settings.
    """
    return cast(Outliner | None, _compiled(jvm, _OUTLINES, PIECE, prefix, java_list(jvm, others)))


@lru_cache(maxsize=1)
def few_rows(jvm: Jvm, most_rows: int) -> FewRows | None:
    """The class that runs plans over at most so many rows, once for a JVM; None where it cannot be compiled."""
    return cast(FewRows | None, _compiled(jvm, _FEW_ROWS, most_rows))


def _compiled(jvm: Jvm, name: str, *arguments: object) -> JavaObject | None:
    try:
        return _made(jvm, name, arguments)
    except Py4JError as error:
        logger.info("queries are planned in more steps: %s is not compiled: %s", name, error)
        return None


def _made(jvm: Jvm, name: str, arguments: Sequence[object]) -> JavaObject:
    type_named(jvm, _COMPILER)  # raises for a class that is absent, where a name alone passes for a package
    compiler = class_named(jvm, _COMPILER)()
    thread = class_named(jvm, "java.lang").Thread.currentThread()
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(files(__package__).joinpath(f"{name}.java").read_text())
    kind = compiler.getClassLoader().loadClass(f"skipstone.{name}")
    given = class_named(jvm, _ARRAYS).newInstance(type_named(jvm, "java.lang.Object"), len(arguments))
    for at, argument in enumerate(arguments):
        given[at] = argument
    return cast(JavaObject, kind.getConstructors()[0].newInstance(given))


def outline_of(outliner: Outliner, session: JavaSession, execution: QueryExecution) -> QueryOutline:
    """The outline of a query, of the versions of its tables that Spark reads."""
    return cast(QueryOutline, _json_of(outliner.outline(session, execution)))


def settings_of(outliner: Outliner, session: JavaSession) -> GivenSettings:
    """The settings of a session that count."""
    return cast(GivenSettings, _json_of(outliner.settings(session)))


def _json_of(text: str | StringBuilder) -> object:
    """What the class tells, which stays in the JVM if it is long."""
    return json.loads(text if isinstance(text, str) else text_in_pieces(text))
