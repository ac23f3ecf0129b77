"""PySpark's doors to its JVM: py4j objects of sessions and DataFrames. What lies behind them is ``catalyst``'s.

A new version of PySpark breaks here and in the tests of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Protocol, cast

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.classic.column import Column
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from skipstone.compat.catalyst import Dataset, JavaSession
from skipstone.compat.java import JavaObject, Jvm, described

if TYPE_CHECKING:
    from pyspark.sql._typing import LiteralType

    PivotValues = list[LiteralType]

__all__ = [
    "ClassicDataFrame",
    "FrontFrame",
    "JvmFrame",
    "count_input_files",
    "is_classic",
    "java_frame",
    "java_session",
    "jvm",
    "pivot_values",
    "plain_frame",
    "running_frame",
    "shows_html",
    "shows_text",
    "with_null_marks",
    "with_partners",
]


@described("org.apache.spark.sql.Row")
class _JavaRow(JavaObject, Protocol):
    """A row in the JVM."""

    def get(self, place: int) -> LiteralType: ...


def is_classic(spark: object) -> bool:
    """Return whether a session has its JVM in reach: one of Spark Connect has not."""
    return isinstance(spark, SparkSession)


def jvm(spark: SparkSession) -> Jvm:
    """The JVM of a session: its classes by name."""
    return cast(Jvm, spark._jvm)


def java_session(spark: SparkSession) -> JavaSession:
    """The session in the JVM."""
    return cast(JavaSession, spark._jsparkSession)


def java_frame(df: DataFrame) -> Dataset:
    """The Dataset in the JVM."""
    return cast(Dataset, df._jdf)


def count_input_files(df: DataFrame) -> int:
    """How many files a DataFrame reads, by one call to the JVM however many they are."""
    return len(java_frame(df).inputFiles())


def with_null_marks(java: Dataset, spark: SparkSession, column: JavaObject, *, in_digits: bool) -> Dataset:
    """A Dataset of two columns: whether ``column`` is null, and its values, bytes in hexadecimal digits."""
    values = Column(column)
    shown = functions.hex(values) if in_digits else values
    return java_frame(ClassicDataFrame(java, spark).select(values.isNull().alias("null"), shown.alias("value")))


def with_partners(
    left: Dataset, right: Dataset, columns: tuple[JavaObject, JavaObject], spark: SparkSession, *, takes_null: bool
) -> Dataset:
    """The rows of ``left`` whose value in the first of ``columns`` some row of ``right`` has in the second.

    No row of ``left`` is shuffled for that.
    """
    own, theirs = map(Column, columns)
    equal = own.eqNullSafe(theirs) if takes_null else own == theirs
    partners = functions.broadcast(ClassicDataFrame(right, spark))
    return java_frame(ClassicDataFrame(left, spark).join(partners, equal, "left_semi"))


def pivot_values(df: DataFrame, column: str) -> PivotValues | None:
    """The values of a column as ``pivot`` takes them: ascending, null too. None when they are more than it allows."""
    most = int(str(df.sparkSession.conf.get("spark.sql.pivotMaxValues")))
    rows = java_frame(df.select(column).distinct().limit(most + 1).sort(column)).collectAsList()
    return [cast(_JavaRow, row).get(0) for row in rows] if len(rows) <= most else None


def plain_frame(java: Dataset, spark: SparkSession) -> DataFrame:
    """A DataFrame of a Dataset in the JVM."""
    return DataFrame(java, spark)


def shows_html(df: DataFrame) -> bool:
    """Return whether a notebook that asks ``df`` for HTML gets its rows. It is not shown as text from here on."""
    df._support_repr_html = True
    return _is_eager(df)


def shows_text(df: DataFrame) -> bool:
    """Return whether the text of ``df`` shows its rows."""
    return not df._support_repr_html and _is_eager(df)


def _is_eager(df: DataFrame) -> bool:
    return bool(df.sparkSession._jconf.isReplEagerEvalEnabled())


class JvmFrame(ClassicDataFrame):
    """A DataFrame whose Dataset can be replaced by another one with the same plan."""

    def __init__(self, java: Dataset, spark: SparkSession) -> None:
        super().__init__(java, spark)

    def replace_java(self, java: Dataset) -> None:
        """Use ``java``, a Dataset with the same columns, from here on."""
        self._jdf = java


#: Members of a DataFrame that run or show its plan: methods, and properties.
_RUN_IT = (
    *("_repr_html_", "_show_string", "approxQuantile", "checkpoint", "collect", "corr", "count", "cov", "explain"),
    *("inputFiles", "isEmpty", "localCheckpoint", "printSchema", "tail", "take", "toArrow", "toJSON"),
    *("toLocalIterator", "toPandas", "writeTo", "__repr__"),
)
_SHOW_IT = ("rdd", "schema", "write")


class FrontFrame(ClassicDataFrame):
    """A DataFrame that runs as ``running``. Others are made of the Dataset that ``make`` gives, which has the same rows
    and the same columns, those that a plan hides included; it is made when somebody needs it.
    """

    def __init__(self, running: DataFrame, make: Callable[[], Dataset]) -> None:
        super().__init__(running._jdf, running.sparkSession)
        self.running = running
        self._make = make
        del self._jdf

    def __getattr__(self, name: str) -> Any:
        """The Dataset that others are made of; any other name is a column."""
        if name != "_jdf":
            return super().__getattr__(name)
        self._jdf = cast(Any, self._make())
        return self._jdf

    def cache(self) -> DataFrame:
        """As the super class; what is run from here on is read from the cache."""
        self._run_as_made()
        return super().cache()

    def persist(self, storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> DataFrame:
        """As the super class; what is run from here on is read from the cache."""
        self._run_as_made()
        return super().persist(storageLevel)

    def _run_as_made(self) -> None:
        self._jdf = cast(Any, self._make())
        self.running = plain_frame(java_frame(self), self.sparkSession)


def running_frame(df: DataFrame) -> DataFrame:
    """Return the DataFrame that runs when an action of ``df`` is called."""
    return df.running if isinstance(df, FrontFrame) else df


def _run(name: str) -> Callable[..., object]:
    def run(self: FrontFrame, /, *args: object, **kwargs: object) -> object:
        return getattr(self.running, name)(*args, **kwargs)

    update_wrapper(run, getattr(ClassicDataFrame, name))
    return run


def _shown(name: str) -> property:
    return property(lambda self: getattr(self.running, name))


for _name in _RUN_IT:
    setattr(FrontFrame, _name, _run(_name))
for _name in _SHOW_IT:
    setattr(FrontFrame, _name, _shown(_name))
