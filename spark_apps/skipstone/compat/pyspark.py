"""PySpark's doors to its JVM: py4j objects of sessions and DataFrames. What lies behind them is the JVM's own.

A new version of PySpark breaks here and in the tests of this module.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

#: An object in the JVM.
Java = Any
__all__ = ["ClassicDataFrame", "Java", "JvmFrame", "java_frame", "java_session", "jvm"]


def jvm(spark: SparkSession) -> Java:
    """The JVM of a session: its classes by name."""
    return spark._jvm


def java_session(spark: SparkSession) -> Java:
    """The session in the JVM."""
    return spark._jsparkSession


def java_frame(df: DataFrame) -> Java:
    """The Dataset in the JVM."""
    return df._jdf


class JvmFrame(ClassicDataFrame):
    """A DataFrame whose Dataset can be replaced by another one with the same plan."""

    def replace_java(self, java: Java) -> None:
        """Use ``java``, a Dataset with the same columns, from here on."""
        self._jdf = java
