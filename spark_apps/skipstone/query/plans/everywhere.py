"""Sends the actions of a session's DataFrames through the rewrite, so that users' code stays as it is.

Called as ``skipstone.enable`` and ``skipstone.disable``. PySpark's class of classic DataFrames gets methods that
rewrite a DataFrame of such a session when it is run, shown or written; with the last session it gets its own back. What
is built from DataFrames stays as users build it: conditions that come later count as well.
Must not decide what a query reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import update_wrapper
from threading import Lock
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

from propcache.api import cached_property
from pyspark import RDD
from pyspark.sql import DataFrame, DataFrameWriter, GroupedData, Row, SparkSession

from skipstone.compat.pyspark import ClassicDataFrame, is_classic, pivot_values, shows_html, shows_text
from skipstone.query.plans.hints import QueryHint, is_ours, with_hints, with_hints_of_text
from skipstone.query.plans.session import explain_as_run, is_settled, rewrite_as_run, rewrite_at_risk, rewrite_to_run

if TYPE_CHECKING:
    from skipstone.compat.pyspark import PivotValues

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: Methods that run the plan of a DataFrame: Spark pins what the tables hold for all of them, the first time.
_RUN_IT = (
    "checkpoint",
    "collect",
    "localCheckpoint",
    "tail",
    "toArrow",
    "toLocalIterator",
    "toPandas",
)
#: Methods that make a query of a DataFrame and run that, each time of what the tables hold then.
_RUN_MORE = (
    "_show_string",
    "approxQuantile",
    "corr",
    "cov",
    "isEmpty",
    "toJSON",
    "transpose",
    "writeTo",
)
_enabled: WeakSet[SparkSession] = WeakSet()
#: Of each method that we replaced: the class, the name, ours, and the one that it replaces.
_replaced: list[tuple[type, str, object, object]] = []
_lock = Lock()
#: Set while a DataFrame runs that is as it should be: what its action calls is not rewritten again.
_runs: ContextVar[bool] = ContextVar("skipstone_runs", default=False)


def enable(spark: SparkSession) -> None:
    """Let the DataFrames of ``spark``, those of ``spark.sql`` included, use indexes whenever they are run.

    For this session object; another one of ``spark.newSession()`` has its own say. Raises ValueError for Spark Connect.
    """
    if not is_classic(spark):
        raise ValueError(
            "spark is a session of Spark Connect, whose plans cannot be rewritten from the client: read through the "
            "data source skipstone.query.datasource.SkipstoneDataSource"
        )
    with _lock:
        _enabled.add(spark)
        if not _replaced:
            _install()


def disable(spark: SparkSession) -> None:
    """Let the DataFrames of ``spark`` run as they are again. Does nothing for a session that is not enabled."""
    with _lock:
        _enabled.discard(spark)
        if not _enabled:
            _uninstall()


def _install() -> None:
    own = vars(ClassicDataFrame)
    ours: dict[str, object] = {name: _rewriting(own[name], _as_run) for name in _RUN_IT}
    ours |= {name: _rewriting(own[name], rewrite_to_run) for name in _RUN_MORE}
    ours |= {"__repr__": _displaying(own["__repr__"], shows_text)}
    ours |= {"_repr_html_": _displaying(own["_repr_html_"], shows_html)}
    ours |= {"count": _counting(own["count"]), "explain": _explaining(own["explain"]), "take": _taking(own["take"])}
    ours |= {"rdd": _sharing(own["rdd"].func), "write": _writing(own["write"].fget)}
    ours |= {"crosstab": _rewriting(own["crosstab"], _at_risk)}
    for name, method in ours.items():
        _replace(ClassicDataFrame, name, method)
    _replace(ClassicDataFrame, "hint", _hinting(own["hint"]))
    _replace(GroupedData, "pivot", _pivoting(GroupedData.pivot))
    _replace(SparkSession, "sql", _reading_hints(vars(SparkSession)["sql"]))


def _replace(owner: type, name: str, method: object) -> None:
    _replaced.append((owner, name, method, vars(owner)[name]))
    setattr(owner, name, method)


def _uninstall() -> None:
    """Give the classes their methods back. What others have put over ours stays, and ours does nothing below it."""
    while _replaced:
        owner, name, ours, own = _replaced.pop()
        if vars(owner)[name] is ours:
            setattr(owner, name, own)


def _is_ours(df: DataFrame) -> bool:
    return not _runs.get() and df.sparkSession in _enabled


@contextmanager
def _as_it_is() -> Iterator[None]:
    token = _runs.set(True)
    try:
        yield
    finally:
        _runs.reset(token)


def _as_run(df: DataFrame) -> DataFrame:
    with _as_it_is():
        return rewrite_as_run(df)


def _at_risk(df: DataFrame) -> DataFrame:
    with _as_it_is():
        return rewrite_at_risk(df)


def _to_run(df: DataFrame) -> DataFrame:
    with _as_it_is():
        return rewrite_to_run(df)


def _rewriting(
    method: Callable[Concatenate[DataFrame, _P], _R], rewritten: Callable[[DataFrame], DataFrame]
) -> Callable[Concatenate[DataFrame, _P], _R]:
    def run(self: DataFrame, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not _is_ours(self):
            return method(self, *args, **kwargs)
        with _as_it_is():
            return method(rewritten(self), *args, **kwargs)

    update_wrapper(run, method)
    return run


def _displaying(
    method: Callable[[DataFrame], _R], shows_rows: Callable[[DataFrame], bool]
) -> Callable[[DataFrame], _R]:
    """Return the display of a DataFrame in shells and notebooks: its rows only if the session asks for them."""

    def display(self: DataFrame) -> _R:
        if not (_is_ours(self) and shows_rows(self)):
            return method(self)
        with _as_it_is():
            return method(rewrite_to_run(self))

    update_wrapper(display, method)
    return display


def _counting(method: Callable[[DataFrame], int]) -> Callable[[DataFrame], int]:
    """Spark counts by a query of its own, in which no column is read."""

    def count(self: DataFrame) -> int:
        if not _is_ours(self):
            return method(self)
        counted = self if is_settled(self) else _to_run(self.groupBy().count())
        with _as_it_is():
            return method(counted) if counted is self else int(counted.collect()[0][0])

    update_wrapper(count, method)
    return count


def _taking(method: Callable[[DataFrame, int], list[Row]]) -> Callable[[DataFrame, int], list[Row]]:
    """Keep a settled DataFrame settled with a limit above it."""

    def take(self: DataFrame, num: int) -> list[Row]:
        if not (_is_ours(self) and is_settled(self)):
            return method(self, num)
        with _as_it_is():
            return method(self, num)

    update_wrapper(take, method)
    return take


def _explaining(method: Callable[Concatenate[DataFrame, _P], None]) -> Callable[Concatenate[DataFrame, _P], None]:
    """The plan that is run, and what became of each relation."""

    def show(self: DataFrame, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if not _is_ours(self):
            method(self, *args, **kwargs)
            return
        with _as_it_is():
            frame, explanation = explain_as_run(self)
            method(frame, *args, **kwargs)
        print(f"== Skipstone ==\n{explanation}\n")  # noqa: T201 - as Spark does

    update_wrapper(show, method)
    return show


def _reading_hints(
    own: Callable[Concatenate[SparkSession, _P], DataFrame],
) -> Callable[Concatenate[SparkSession, _P], DataFrame]:
    """The query of a text, whose hints Spark drops, with those about indexes."""

    def sql(self: SparkSession, /, *args: _P.args, **kwargs: _P.kwargs) -> DataFrame:
        df = own(self, *args, **kwargs)
        text = args[0] if args else kwargs.get("sqlQuery")
        return with_hints_of_text(df, str(text)) if self in _enabled else df

    update_wrapper(sql, own)
    return sql


def _hinting(
    own: Callable[Concatenate[DataFrame, _P], DataFrame],
) -> Callable[Concatenate[DataFrame, _P], DataFrame]:
    """A DataFrame with a hint; one about indexes is not passed on to Spark, which would drop it."""

    def hint(self: DataFrame, /, *args: _P.args, **kwargs: _P.kwargs) -> DataFrame:
        name = args[0] if args else kwargs.get("name")
        if not (self.sparkSession in _enabled and isinstance(name, str) and is_ours(name)):
            return own(self, *args, **kwargs)
        names = [str(part) for given in args[1:] for part in (given if isinstance(given, list) else (given,))]
        return with_hints(self, [QueryHint(name.upper(), tuple(names))])

    update_wrapper(hint, own)
    return hint


def _sharing(own: Callable[[DataFrame], RDD[Row]]) -> object:
    """The rows as an RDD, the same one whenever a DataFrame is asked for it."""

    def rdd(self: DataFrame) -> RDD[Row]:
        return own(_as_run(self) if _is_ours(self) else self)

    shared = cached_property(rdd)
    shared.__set_name__(ClassicDataFrame, "rdd")
    return shared


def _writing(own: Callable[[DataFrame], DataFrameWriter]) -> object:
    """Return the writer of the answer to files and tables."""
    return property(lambda self: own(_to_run(self) if _is_ours(self) else self))


def _pivoting(own: Callable[[GroupedData, str, PivotValues | None], GroupedData]) -> object:
    """Spark finds the values of a pivot by a query of its own, in which Iceberg may lose rows."""

    def pivot(self: GroupedData, pivot_col: str, values: PivotValues | None = None) -> GroupedData:
        df = self._df
        if values is None and _is_ours(df) and (at_risk := _at_risk(df)) is not df:
            with _as_it_is():
                values = pivot_values(at_risk, pivot_col)
        return own(self, pivot_col, values)

    update_wrapper(pivot, own)
    return pivot
