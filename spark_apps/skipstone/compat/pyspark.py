"""PySpark's doors to its JVM: py4j objects of sessions and DataFrames. What lies behind them is ``catalyst``'s.

A new version of PySpark breaks here and in the tests of this module.
"""

from __future__ import annotations

from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from skipstone.compat.catalyst import Dataset, JavaSession
from skipstone.compat.java import JavaObject, Jvm

__all__ = [
    "ClassicDataFrame",
    "JvmFrame",
    "column_values",
    "count_input_files",
    "is_classic",
    "java_frame",
    "java_session",
    "jvm",
    "plain_frame",
    "shows_html",
    "shows_text",
]


def is_classic(spark: object) -> bool:
    """Whether a session has its JVM in reach: one of Spark Connect has not."""
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


def column_values(java: Dataset, spark: SparkSession, column: JavaObject) -> list[object]:
    """The values of a column of a Dataset, as Python's. Runs it."""
    return [row[0] for row in ClassicDataFrame(java, spark).select(Column(column)).collect()]


def plain_frame(java: Dataset, spark: SparkSession) -> DataFrame:
    """A DataFrame of a Dataset in the JVM."""
    return DataFrame(java, spark)


def shows_html(df: DataFrame) -> bool:
    """Whether a notebook that asks ``df`` for HTML gets its rows. It is not shown as text from here on."""
    df._support_repr_html = True
    return _is_eager(df)


def shows_text(df: DataFrame) -> bool:
    """Whether the text of ``df`` shows its rows."""
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
