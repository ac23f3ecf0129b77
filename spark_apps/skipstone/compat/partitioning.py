"""How Spark divides rows among tasks: partitionings, RDDs, and the nodes of plans that say so.

As in ``catalyst`` nothing here is public to Spark's users, and a test looks up every class and method. Must not decide
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, cast

from skipstone.compat.catalyst import (
    Attribute,
    Dataset,
    Expression,
    ExprId,
    JavaSession,
    LogicalPlan,
    Relation,
    SparkPlan,
)
from skipstone.compat.icebergjava import SparkTable
from skipstone.compat.java import (
    JavaMap,
    JavaName,
    JavaObject,
    Jvm,
    Option,
    ScalaName,
    Seq,
    class_named,
    described,
    java_list,
    scala_object,
    scala_seq,
    type_named,
)
from skipstone.compat.methods import values_at

_CATALYST = "org.apache.spark.sql.catalyst"
_PHYSICAL = f"{_CATALYST}.plans.physical"
_LOGICAL = f"{_CATALYST}.plans.logical"
#: Partitions of a scan by the values of columns.
KEY_GROUPED = "KeyGroupedPartitioning"


@described("org.apache.spark.rdd.RDD")
class RowPartitions(JavaObject, Protocol):
    """An RDD."""

    def getNumPartitions(self) -> int: ...


@described("org.apache.spark.SparkContext")
class JavaContext(JavaObject, Protocol):
    """The context that runs jobs."""

    def union(self, parts: Seq[RowPartitions], kind: JavaObject) -> RowPartitions: ...


@described("org.apache.spark.sql.classic.SparkSession")
class CloneableSession(JavaSession, Protocol):
    """A session with settings of its own."""

    def cloneSession(self) -> CloneableSession: ...
    def conf(self) -> SessionSettings: ...
    def sparkContext(self) -> JavaContext: ...


@described("org.apache.spark.sql.classic.RuntimeConfig")
class SessionSettings(JavaObject, Protocol):
    """The settings of a session."""

    def getAllAsJava(self) -> JavaMap: ...
    def set(self, key: str, value: str) -> object: ...


@described("org.apache.spark.sql.execution.QueryExecution")
class RowExecution(JavaObject, Protocol):
    """The execution of a query."""

    def executedPlan(self) -> SparkPlan: ...
    def optimizedPlan(self) -> LogicalPlan: ...
    def toRdd(self) -> RowPartitions: ...


@described(f"{_PHYSICAL}.{KEY_GROUPED}")
class KeyGrouped(JavaObject, Protocol):
    """Partitions of a scan by the values of columns; the RDD has them in the order of the values."""

    def expressions(self) -> Seq[Expression]: ...
    def uniquePartitionValues(self) -> Seq[JavaObject]: ...


@described(f"{_PHYSICAL}.HashPartitioning")
class HashPartitioning(JavaObject, Protocol):
    """Partitions by the hash of keys."""

    def partitionIdExpression(self) -> Evaluable: ...


@described(f"{_CATALYST}.expressions.Expression")
class Evaluable(Expression, Protocol):
    """An expression that is evaluated here."""

    def eval(self, row: None) -> int: ...


@described(f"{_CATALYST}.expressions.AttributeReference")
class NamedAttribute(Attribute, Protocol):
    """A column of a plan with its name."""

    def name(self) -> str: ...


# --- classes and singletons ---


@described("org.apache.spark.rdd.PartitionPruningRDD$")
class _Pruned(Protocol):
    def create(self, rows: RowPartitions, partitions: JavaObject) -> RowPartitions: ...


@described("org.apache.spark.api.java.JavaSparkContext")
class _Contexts(Protocol):
    def fromSparkContext(self, context: JavaContext) -> _JavaContext: ...


@described("org.apache.spark.api.java.JavaSparkContext")
class _JavaContext(Protocol):
    def parallelize(self, rows: Sequence[object], partitions: int) -> _JavaRows: ...


@described("org.apache.spark.api.java.JavaRDD")
class _JavaRows(Protocol):
    def rdd(self) -> RowPartitions: ...


@described(f"{_LOGICAL}.RepartitionByExpression$")
class _Repartitions(Protocol):
    def apply(self, keys: Seq[Expression], child: LogicalPlan, partitions: int) -> LogicalPlan: ...


@described(f"{_LOGICAL}.Filter$")
class _Filters(Protocol):
    def apply(self, condition: Expression, child: LogicalPlan) -> LogicalPlan: ...


@described(f"{_CATALYST}.expressions.Cast$")
class _Casts(Protocol):
    def apply(
        self,
        child: Expression,
        kind: JavaObject,
        zone: JavaObject,
        ansi: bool,  # noqa: FBT001 - as Spark has it
    ) -> Expression: ...


@described(f"{_CATALYST}.expressions.And$")
class _Ands(Protocol):
    def apply(self, left: Expression, right: Expression) -> Expression: ...


@described("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation$")
class _Relations(Protocol):
    def create(self, table: SparkTable, catalog: Option[JavaObject], identifier: Option[JavaObject]) -> Relation: ...


@described("scala.reflect.ClassTag$")
class _ClassTags(Protocol):
    def AnyRef(self) -> JavaObject: ...


@described(f"{_CATALYST}.parser.CatalystSqlParser$")
class _Parsers(Protocol):
    def parseExpression(self, text: str) -> Expression: ...


ALIAS: JavaName[Callable[[Expression, str, ExprId, Seq[str], Option[JavaObject], Seq[JavaObject]], Attribute]] = (
    JavaName(f"{_CATALYST}.expressions.Alias")
)
AND: ScalaName[_Ands] = ScalaName(f"{_CATALYST}.expressions.And")
CAST: ScalaName[_Casts] = ScalaName(f"{_CATALYST}.expressions.Cast")
CLASS_TAGS: ScalaName[_ClassTags] = ScalaName("scala.reflect.ClassTag")
CONTEXTS: JavaName[_Contexts] = JavaName("org.apache.spark.api.java.JavaSparkContext")
FILTER: ScalaName[_Filters] = ScalaName(f"{_LOGICAL}.Filter")
HASH_PARTITIONINGS: JavaName[Callable[[Seq[Expression], int], HashPartitioning]] = JavaName(
    f"{_PHYSICAL}.HashPartitioning"
)
LOGICAL_RDD: JavaName[Callable[..., LogicalPlan]] = JavaName("org.apache.spark.sql.execution.LogicalRDD")
LONG_TYPE: ScalaName[JavaObject] = ScalaName("org.apache.spark.sql.types.LongType")
PARSER: ScalaName[_Parsers] = ScalaName(f"{_CATALYST}.parser.CatalystSqlParser")
PRUNED: ScalaName[_Pruned] = ScalaName("org.apache.spark.rdd.PartitionPruningRDD")
RELATIONS: ScalaName[_Relations] = ScalaName("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
REPARTITION: ScalaName[_Repartitions] = ScalaName(f"{_LOGICAL}.RepartitionByExpression")


def session_settings(jvm: Jvm, session: JavaSession) -> dict[str, str]:
    """The settings of a session that have a value, in one call."""
    settings: dict[str, str] = values_at(jvm, session, ((CloneableSession.conf, SessionSettings.getAllAsJava),))[0]
    return settings


def row_execution(dataset: Dataset) -> RowExecution:
    """Return the execution of a Dataset."""
    return cast(RowExecution, dataset.queryExecution())


def numbers_at(jvm: Jvm, rows: Seq[JavaObject], position: int) -> list[int]:
    """The integers in one field of rows, by one call to the JVM however many there are."""
    text = str(cast(Any, rows).map(_number_at(jvm, position)).mkString(","))
    return [int(number) for number in text.split(",")] if text else []


@lru_cache(maxsize=8)
def _number_at(jvm: Jvm, position: int) -> JavaObject:
    """A function of Scala that gives an integer of a row."""
    handles, types = (class_named(jvm, f"java.lang.invoke.{name}") for name in ("MethodHandles", "MethodType"))
    number, row = class_named(jvm, "java.lang.Integer").TYPE, type_named(jvm, f"{_CATALYST}.InternalRow")
    getter = handles.publicLookup().findVirtual(row, "getInt", types.methodType(number, java_list(jvm, [number])))
    handle = handles.insertArguments(getter, 1, java_list(jvm, [position]).toArray())
    function = type_named(jvm, "scala.Function1")
    shown: JavaObject = class_named(jvm, "java.lang.invoke.MethodHandleProxies").asInterfaceInstance(function, handle)
    return shown


def chosen_partition(jvm: Jvm, rows: RowPartitions, partition: int) -> RowPartitions:
    """One partition of an RDD. A set of Scala is the function that says whether it holds a number."""
    numbers = cast(Any, scala_seq(jvm, [partition])).toSet()
    return scala_object(jvm, PRUNED).create(rows, numbers)
