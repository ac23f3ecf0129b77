"""Hints of Spark about indexes, ``SKIPSTONE_INDEX`` and ``SKIPSTONE_NO_INDEX``: found, and put on relations by name.

Called by ``session`` and ``everywhere`` when a DataFrame is made. Spark drops hints that it does not know when it
analyzes a query, and warns; so they are read before that, and each relation carries its own as a tag, which copies of
it keep. Must not decide what a hint does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from pyspark.sql import DataFrame
from skipstone_core.indexing.hints import IndexHint

from skipstone.compat.catalyst import DATASETS, LogicalPlan, plan_json
from skipstone.compat.java import Jvm, java_class
from skipstone.compat.pyspark import java_frame, java_session, jvm, plain_frame
from skipstone.query.plans.analysis.relations import Site, put_hint, sites_of
from skipstone.query.plans.analysis.uses import ancestors, open_scope
from skipstone.query.plans.fallback import or_else

logger = logging.getLogger("skipstone.query")

INDEX, NO_INDEX = "SKIPSTONE_INDEX", "SKIPSTONE_NO_INDEX"
#: How a text begins that may hold a hint of ours, in lower case.
_PREFIX = "skipstone_"
_HINT, _COLUMN = ".UnresolvedHint", ".UnresolvedAttribute"


@dataclass(frozen=True)
class QueryHint:
    """A hint as a query says it: its name in upper case, and its parameters as texts."""

    name: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.name}({', '.join(self.parameters)})"


def is_ours(name: str) -> bool:
    """Return whether a hint is about indexes."""
    return name.upper() in (INDEX, NO_INDEX)


def with_hints_of_text(df: DataFrame, text: str) -> DataFrame:
    """``df``, which Spark made of the SQL ``text``, with the hints of the text on its relations."""
    if _PREFIX not in text.lower():
        return df
    plan = java_frame(df).queryExecution().logical()
    hints = or_else(lambda: [*_hints_in(json.loads(plan_json(jvm(df.sparkSession), plan)))], lambda _: [], _UNREAD)
    return with_hints(df, hints)


_UNREAD = "the hints of a query are not read"


def with_hints(df: DataFrame, hints: Sequence[QueryHint]) -> DataFrame:
    """A DataFrame as ``df`` whose relations carry ``hints``; ``df`` itself if none names a table of it.

    A hint that names no table of the query is left out, with a warning, which ``explain`` shows too.
    """
    return or_else(lambda: _with_hints(df, hints), lambda _: df, _UNREAD) if hints else df


def _with_hints(df: DataFrame, hints: Sequence[QueryHint]) -> DataFrame:
    spark = df.sparkSession
    plan = java_frame(df).queryExecution().commandExecuted().clone()  # others may share its nodes
    sites = _sites(jvm(spark), plan)
    problems = tuple(problem for hint in hints for problem in _put(jvm(spark), hint, sites))
    for problem in problems:
        logger.warning("%s", problem)
    for relation in sites if problems else ():
        put_hint(jvm(spark), relation.site.java, IndexHint(problems=problems))
    return plain_frame(java_class(jvm(spark), DATASETS).ofRows(java_session(spark), plan), spark) if sites else df


def _hints_in(value: object) -> Iterator[QueryHint]:
    """The hints of ours in the JSON of a plan, those of subqueries too, the outermost first."""
    if isinstance(value, list):
        for item in value:
            yield from _hints_in(item)
    elif isinstance(value, dict):
        fields = cast(dict[str, object], value)
        if str(fields.get("class", "")).endswith(_HINT) and is_ours(str(fields["name"])):
            given = cast(list[list[dict[str, object]]], fields["parameters"])
            yield QueryHint(str(fields["name"]).upper(), tuple(_parameter(tree[0]) for tree in given))
        for field in fields.values():
            yield from _hints_in(field)


def _parameter(node: dict[str, object]) -> str:
    """A name, with dots between its parts, or a literal."""
    if str(node["class"]).endswith(_COLUMN):
        return ".".join(_parts(node["nameParts"]))
    return str(node.get("value", ""))


def _parts(names: object) -> list[str]:
    """The texts of a sequence, which the JSON of a plan shows as one text, ``[a, b]``, or as an empty list."""
    return str(names).removeprefix("[").removesuffix("]").split(", ") if names else []


# --- which relation a hint is about ---


@dataclass(frozen=True, eq=False)
class _Named:
    """A relation of a query with the names that it has there, each as its parts in lower case."""

    site: Site
    names: tuple[tuple[str, ...], ...]

    def is_called(self, name: str) -> bool:
        """Return whether ``name`` is one of its names, or the end of one."""
        parts = tuple(name.lower().split("."))
        return any(known[-len(parts) :] == parts for known in self.names)


def _sites(jvm: Jvm, plan: LogicalPlan) -> list[_Named]:
    sites = (site for places in sites_of(jvm, open_scope(jvm, plan)).values() for site in places)
    return [_Named(site, tuple(_names(site))) for site in sites]


def _names(site: Site) -> Iterator[tuple[str, ...]]:
    """The aliases of a relation, its full name among them, and those of the views and subqueries that it is in."""
    for node in ancestors(site.scope.tree, site.node):
        if node.name == "SubqueryAlias":
            alias = node.fields["identifier"]
            yield tuple(part.lower() for part in (*_parts(alias["qualifier"]), str(alias["name"])))


def _put(jvm: Jvm, hint: QueryHint, relations: Sequence[_Named]) -> Iterator[str]:
    """Put a hint on the relations that it names; a sentence on each table that it names and the query does not read."""
    return _put_none(jvm, hint, relations) if hint.name == NO_INDEX else _put_names(jvm, hint, relations)


def _put_none(jvm: Jvm, hint: QueryHint, relations: Sequence[_Named]) -> Iterator[str]:
    for table in hint.parameters or ("",):
        meant = [relation for relation in relations if not table or relation.is_called(table)]
        if not meant:
            yield _problem(hint, table)
        for relation in meant:
            put_hint(jvm, relation.site.java, IndexHint(is_none=True))


def _put_names(jvm: Jvm, hint: QueryHint, relations: Sequence[_Named]) -> Iterator[str]:
    """Its first parameter is a table; it may be missing before one index where the query reads one table only."""
    table, *names = hint.parameters or ("",)
    meant = [relation for relation in relations if not table or relation.is_called(table)]
    if not meant and not names and len({relation.site.java.table().name() for relation in relations}) == 1:
        meant, names = [*relations], [table]
    if not meant:
        yield _problem(hint, table)
    for relation in meant:
        put_hint(jvm, relation.site.java, IndexHint(tuple(names), is_any=not names))


def _problem(hint: QueryHint, table: str) -> str:
    where = f"reads no Iceberg table {table}" if table else "reads no Iceberg table"
    return f"the hint {hint} is not used: the query {where}; name a table of the query, or its alias"
