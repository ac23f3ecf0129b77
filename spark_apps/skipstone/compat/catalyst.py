"""Spark's classes in the JVM: names of Catalyst and of Spark SQL, and the methods that we call of each.

Nothing here is public to Spark's users: a new version breaks in the test of this module. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

from skipstone.compat.icebergjava import SparkCatalog, SparkTable
from skipstone.compat.java import (
    JavaArray,
    JavaMap,
    JavaName,
    JavaObject,
    Jvm,
    Option,
    ScalaName,
    Seq,
    StringBuilder,
    class_named,
    described,
    java_list,
    object_named,
    text_in_pieces,
    type_named,
)

CATALYST = "org.apache.spark.sql.catalyst"
EXECUTION = "org.apache.spark.sql.execution"
_TREE_NODE = f"{CATALYST}.trees.TreeNode"
_LOGICAL_PLAN = f"{CATALYST}.plans.logical.LogicalPlan"
_SEQ = "scala.collection.immutable.Seq"
_STRUCT = "org.apache.spark.sql.types.StructType"
Tree = TypeVar("Tree", "LogicalPlan", "Expression")


class Rule(StrEnum):
    """The rules of Spark's optimizer that are singletons."""

    BOOLEAN_SIMPLIFICATION = "optimizer.BooleanSimplification"
    COLUMN_PRUNING = "optimizer.ColumnPruning"
    COMBINE_FILTERS = "optimizer.CombineFilters"
    COMPUTE_CURRENT_TIME = "optimizer.ComputeCurrentTime"
    CONSTANT_FOLDING = "optimizer.ConstantFolding"
    ELIMINATE_OUTER_JOIN = "optimizer.EliminateOuterJoin"
    ELIMINATE_PIPE_OPERATORS = "expressions.EliminatePipeOperators"
    ELIMINATE_RESOLVED_HINT = "optimizer.EliminateResolvedHint"
    ELIMINATE_SQL_FUNCTION_NODE = "optimizer.EliminateSQLFunctionNode"
    ELIMINATE_SUBQUERY_ALIASES = "analysis.EliminateSubqueryAliases"
    ELIMINATE_VIEW = "analysis.EliminateView"
    INFER_FILTERS_FROM_CONSTRAINTS = "optimizer.InferFiltersFromConstraints"
    LIKE_SIMPLIFICATION = "optimizer.LikeSimplification"
    NULL_PROPAGATION = "optimizer.NullPropagation"
    OPTIMIZE_IN = "optimizer.OptimizeIn"
    PULL_UP_CORRELATED_PREDICATES = "optimizer.PullupCorrelatedPredicates"
    PUSH_DOWN_PREDICATES = "optimizer.PushDownPredicates"
    PUSH_EXTRA_PREDICATE_THROUGH_JOIN = "optimizer.PushExtraPredicateThroughJoin"
    REORDER_JOIN = "optimizer.ReorderJoin"
    REPLACE_DISTINCT_WITH_AGGREGATE = "optimizer.ReplaceDistinctWithAggregate"
    REPLACE_EXCEPT_WITH_ANTI_JOIN = "optimizer.ReplaceExceptWithAntiJoin"
    REPLACE_EXPRESSIONS = "optimizer.ReplaceExpressions"
    REPLACE_INTERSECT_WITH_SEMI_JOIN = "optimizer.ReplaceIntersectWithSemiJoin"
    REWRITE_CORRELATED_SCALAR_SUBQUERY = "optimizer.RewriteCorrelatedScalarSubquery"
    REWRITE_PREDICATE_SUBQUERY = "optimizer.RewritePredicateSubquery"
    REWRITE_WITH_EXPRESSION = "optimizer.RewriteWithExpression"
    SIMPLIFY_CASTS = "optimizer.SimplifyCasts"
    UNWRAP_CAST_IN_BINARY_COMPARISON = "optimizer.UnwrapCastInBinaryComparison"


#: Classes that are known by their simple names, of nodes in the JSON of plans and of physical plans, by package.
NODES: Mapping[str, tuple[str, ...]] = {
    f"{CATALYST}.plans.logical": (
        *("Aggregate", "AsOfJoin", "AttachDistributedSequence", "CollectMetrics", "CommandResult", "Except", "Filter"),
        *("Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin", "LocalLimit", "LocalRelation", "Offset"),
        *("OneRowRelation", "Project", "Range", "RebalancePartitions", "Repartition", "RepartitionByExpression"),
        *("Sample", "Sort", "SubqueryAlias", "Tail", "Union", "UnionLoop", "UnionLoopRef", "View", "Window", "WithCTE"),
    ),
    f"{CATALYST}.expressions": (
        *("Alias", "And", "AttributeReference", "Between", "CaseWhen", "Cast", "Coalesce", "Collate"),
        *("CreateNamedStruct", "EqualNullSafe", "EqualTo", "Exists", "GreaterThan", "GreaterThanOrEqual", "If", "In"),
        *("InSet", "InSubquery", "IsNaN", "IsNotNull", "IsNull", "LessThan", "LessThanOrEqual", "ListQuery", "Literal"),
        *("Lower", "MonotonicallyIncreasingID", "Not", "Or", "OuterReference", "Remainder", "ScalarSubquery"),
        *("StartsWith", "Upper", "WindowExpression", "Year"),
    ),
    f"{CATALYST}.expressions.aggregate": ("AggregateExpression", "Max", "Min"),
    f"{CATALYST}.plans": ("ExistenceJoin",),
    f"{CATALYST}.plans.physical": ("KeyGroupedPartitioning",),
    EXECUTION: ("RDDScanExec", "SubqueryAdaptiveBroadcastExec", "SubqueryBroadcastExec"),
    f"{EXECUTION}.adaptive": ("AdaptiveSparkPlanExec",),
    f"{CATALYST}.catalog": ("HiveTableRelation",),
    f"{EXECUTION}.datasources": ("LogicalRelation",),
    f"{EXECUTION}.datasources.v2": ("BatchScanExec", "DataSourceV2Relation", "DataSourceV2ScanRelation"),
    f"{EXECUTION}.exchange": ("ShuffleExchangeExec",),
    f"{EXECUTION}.joins": ("BroadcastHashJoinExec", "ShuffledHashJoinExec", "SortMergeJoinExec"),
}
#: Singletons that the JSON of a join shows.
JOIN_TYPES = ("Cross", "FullOuter", "Inner", "LeftAnti", "LeftOuter", "LeftSemi", "RightOuter")
JOIN_TYPE_PACKAGE = f"{CATALYST}.plans"


# --- trees ---


@described(_TREE_NODE)
class TreeNode(JavaObject, Protocol):
    """A plan or an expression."""

    def fastEquals(self, other: TreeNode) -> bool: ...
    def getTagValue(self, tag: JavaObject) -> Option[str]: ...
    def makeCopy(self, fields: JavaObject) -> LogicalPlan: ...
    def productArity(self) -> int: ...
    def productElement(self, position: int) -> JavaObject: ...
    def setTagValue(self, tag: JavaObject, value: str) -> None: ...


@described(f"{CATALYST}.expressions.Expression")
class Expression(TreeNode, Protocol):
    """An expression."""

    def children(self) -> Seq[Expression]: ...
    def dataType(self) -> DataType: ...
    def deterministic(self) -> bool: ...
    def references(self) -> AttributeSet: ...
    def withNewChildren(self, children: Seq[Expression]) -> Expression: ...


@described(f"{CATALYST}.expressions.PlanExpression")
class PlanExpression(Expression, Protocol):
    """An expression with a plan inside."""

    def plan(self) -> LogicalPlan: ...
    def withNewPlan(self, plan: LogicalPlan) -> Expression: ...


@described(f"{CATALYST}.expressions.Literal")
class Literal(Expression, Protocol):
    """A literal; a day or a moment is a number."""

    def value(self) -> int: ...


@described(f"{CATALYST}.expressions.Literal")
class BinaryLiteral(Expression, Protocol):
    """A literal of bytes."""

    def value(self) -> bytes: ...


@described(f"{CATALYST}.expressions.Literal")
class RowLiteral(Expression, Protocol):
    """A literal of a struct."""

    def value(self) -> InternalRow: ...
    def dataType(self) -> StructType: ...


@described(f"{CATALYST}.InternalRow")
class InternalRow(JavaObject, Protocol):
    """A struct as Catalyst holds it."""

    def toSeq(self, schema: StructType) -> LiteralSeq: ...


@described(f"{CATALYST}.expressions.InSet")
class InSet(Expression, Protocol):
    """A test for being in a set of literals."""

    def child(self) -> Expression: ...
    def hset(self) -> LiteralSet: ...


@described("scala.collection.immutable.Set")
class LiteralSet(JavaObject, Protocol):
    """The literals of an InSet, as Catalyst holds them."""

    def size(self) -> int: ...
    def isEmpty(self) -> bool: ...
    def contains(self, value: None) -> bool: ...
    def excl(self, value: None) -> LiteralSet: ...
    def addString(self, builder: ScalaBuilder, separator: str) -> ScalaBuilder: ...


@described(_SEQ)
class LiteralSeq(JavaObject, Protocol):
    """Values as Catalyst holds them, or texts of such."""

    def addString(self, builder: ScalaBuilder, separator: str) -> ScalaBuilder: ...
    def distinct(self) -> LiteralSeq: ...
    def isEmpty(self) -> bool: ...
    def mkString(self, separator: str) -> str: ...


@described("scala.collection.mutable.StringBuilder")
class ScalaBuilder(JavaObject, Protocol):
    """A text that stays in the JVM."""

    def underlying(self) -> StringBuilder: ...


@described(f"{CATALYST}.expressions.ExprId")
class ExprId(JavaObject, Protocol):
    """By which Catalyst knows an attribute."""

    def id(self) -> int: ...


@described(f"{CATALYST}.expressions.Attribute")
class Attribute(Expression, Protocol):
    """A column of a plan."""

    def exprId(self) -> ExprId: ...
    def name(self) -> str: ...
    def qualifier(self) -> Seq[str]: ...


@described(f"{CATALYST}.expressions.AttributeSet")
class AttributeSet(JavaObject, Protocol):
    """Different columns."""

    def toSeq(self) -> Seq[Attribute]: ...


@described(_LOGICAL_PLAN)
class LogicalPlan(TreeNode, Protocol):
    """A logical plan."""

    def children(self) -> Seq[LogicalPlan]: ...
    def clone(self) -> LogicalPlan: ...
    def collectLeaves(self) -> Seq[LogicalPlan]: ...
    def deterministic(self) -> bool: ...
    def expressions(self) -> Seq[Expression]: ...
    def isStreaming(self) -> bool: ...
    def output(self) -> Seq[Attribute]: ...
    def schema(self) -> StructType: ...
    def setAnalyzed(self) -> object: ...
    def stats(self) -> Statistics: ...
    def subqueriesAll(self) -> Seq[LogicalPlan]: ...
    def transformDownWithSubqueries(self, rule: JavaObject) -> LogicalPlan: ...
    def withNewChildren(self, children: Seq[LogicalPlan]) -> LogicalPlan: ...


@described(f"{CATALYST}.plans.logical.Statistics")
class Statistics(JavaObject, Protocol):
    """Spark's estimates of a plan."""

    def sizeInBytes(self) -> int: ...


@described("org.apache.spark.sql.types.DataType")
class DataType(JavaObject, Protocol):
    """A type."""

    def catalogString(self) -> str: ...


@described(_STRUCT)
class StructType(DataType, Protocol):
    """A schema."""

    def json(self) -> str: ...


@described("scala.collection.immutable.Seq")
class Rows(JavaObject, Protocol):
    """Rows in a plan."""

    def size(self) -> int: ...


@described(f"{CATALYST}.plans.logical.LocalRelation")
class LocalRelation(LogicalPlan, Protocol):
    """Rows in a plan, as a relation."""

    def data(self) -> Rows: ...


@described(f"{CATALYST}.plans.logical.LateralJoin")
class LateralJoin(LogicalPlan, Protocol):
    """A join with a plan that is computed for each row."""

    def right(self) -> PlanExpression: ...
    def joinType(self) -> JavaObject: ...
    def condition(self) -> Option[Expression]: ...


@described("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
class Relation(LogicalPlan, Protocol):
    """A table in a plan."""

    def table(self) -> SparkTable: ...
    def catalog(self) -> Option[SparkCatalog]: ...
    def identifier(self) -> Option[JavaObject]: ...
    def options(self) -> JavaMap: ...
    def timeTravelSpec(self) -> Option[JavaObject]: ...
    def copy(  # noqa: PLR0913, PLR0917 - as Spark has it
        self,
        table: SparkTable,
        output: Seq[Attribute],
        catalog: Option[JavaObject],
        identifier: Option[JavaObject],
        options: JavaMap,
        time_travel: Option[JavaObject],
    ) -> Relation: ...


@described("org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation")
class ScanRelation(LogicalPlan, Protocol):
    """A table in an optimized plan."""

    def relation(self) -> Relation: ...
    def scan(self) -> Scan: ...


@described("org.apache.spark.sql.connector.read.Scan")
class Scan(JavaObject, Protocol):
    """How a table is read."""

    def description(self) -> str: ...
    def readSchema(self) -> StructType: ...


# --- physical plans ---


@described(f"{EXECUTION}.SparkPlan")
class SparkPlan(TreeNode, Protocol):
    """A physical plan."""

    def children(self) -> Seq[SparkPlan]: ...
    def collectLeaves(self) -> Seq[SparkPlan]: ...
    def executeCollect(self) -> JavaArray: ...
    def output(self) -> Seq[Attribute]: ...
    def outputPartitioning(self) -> JavaObject: ...
    def subqueriesAll(self) -> Seq[SparkPlan]: ...


# --- sessions ---


@described(f"{EXECUTION}.QueryExecution")
class QueryExecution(JavaObject, Protocol):
    """The plans of a query."""

    def analyzed(self) -> LogicalPlan: ...
    def commandExecuted(self) -> LogicalPlan: ...
    def executedPlan(self) -> SparkPlan: ...
    def logical(self) -> LogicalPlan: ...
    def optimizedPlan(self) -> LogicalPlan: ...
    def tableVersionsRefreshed(self) -> LogicalPlan: ...
    def withCachedData(self) -> LogicalPlan: ...


@described("org.apache.spark.sql.classic.Dataset")
class Dataset(JavaObject, Protocol):
    """A DataFrame in the JVM."""

    def inputFiles(self) -> Sequence[str]: ...
    def coalesce(self, partitions: int) -> Dataset: ...
    def collectAsList(self) -> Sequence[JavaObject]: ...
    def limit(self, rows: int) -> Dataset: ...
    def queryExecution(self) -> QueryExecution: ...


@described("org.apache.spark.sql.classic.SparkSession")
class JavaSession(JavaObject, Protocol):
    """A session in the JVM."""

    def sharedState(self) -> SharedState: ...


@described("org.apache.spark.sql.internal.SharedState")
class SharedState(JavaObject, Protocol):
    """The state that sessions share."""

    def cacheManager(self) -> CacheManager: ...


@described(f"{EXECUTION}.CacheManager")
class CacheManager(JavaObject, Protocol):
    """Holds rows of plans that were cached."""

    def isEmpty(self) -> bool: ...


# --- classes and singletons ---


@described("org.apache.spark.sql.classic.Dataset$")
class _Datasets(Protocol):
    def ofRows(self, session: JavaSession, plan: LogicalPlan) -> Dataset: ...


@described("org.apache.spark.sql.classic.SparkSession$")
class _Sessions(Protocol):
    def getActiveSession(self) -> Option[JavaSession]: ...
    def setActiveSession(self, session: JavaSession) -> None: ...
    def clearActiveSession(self) -> None: ...


@described(f"{CATALYST}.plans.logical.LocalRelation$")
class _LocalRelations(Protocol):
    def apply(
        self,
        output: Seq[Attribute],
        data: JavaObject,
        is_streaming: bool,  # noqa: FBT001 - as Spark has it
        stream: Option[JavaObject],
    ) -> LocalRelation: ...


@described(f"{CATALYST}.plans.logical.Project$")
class _Projects(Protocol):
    def apply(self, expressions: Seq[Attribute], child: LogicalPlan) -> LogicalPlan: ...


@described(f"{CATALYST}.plans.logical.Join$")
class _Joins(Protocol):
    def apply(
        self, left: LogicalPlan, right: LogicalPlan, kind: JavaObject, condition: JavaObject, hint: JavaObject
    ) -> LogicalPlan: ...


@described(f"{CATALYST}.plans.logical.JoinHint$")
class _JoinHints(Protocol):
    def NONE(self) -> JavaObject: ...


@described("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation$")
class _Relations(Protocol):
    def create(
        self, table: SparkTable | None, catalog: Option[JavaObject], identifier: Option[JavaObject]
    ) -> Relation: ...


@described("org.apache.spark.sql.classic.ExpressionUtils$")
class _ExpressionUtils(Protocol):
    def column(self, expression: Expression) -> JavaObject: ...


@described(f"{CATALYST}.plans.logical.SubqueryAlias$")
class _SubqueryAliases(Protocol):
    def apply(self, name: str, child: LogicalPlan) -> LogicalPlan: ...


@described(f"{CATALYST}.plans.logical.Union$")
class _Unions(Protocol):
    def apply(self, left: LogicalPlan, right: LogicalPlan) -> LogicalPlan: ...


@described(f"{CATALYST}.rules.Rule")
class PlanRule(JavaObject, Protocol):
    """A rule of Spark's optimizer."""

    def apply(self, plan: LogicalPlan) -> LogicalPlan: ...


DATASETS: JavaName[_Datasets] = JavaName("org.apache.spark.sql.classic.Dataset")
SESSIONS: JavaName[_Sessions] = JavaName("org.apache.spark.sql.classic.SparkSession")
OPTIONS: JavaName[Callable[[JavaMap], JavaMap]] = JavaName("org.apache.spark.sql.util.CaseInsensitiveStringMap")
INLINE_CTE: JavaName[Callable[[bool, bool], PlanRule]] = JavaName(f"{CATALYST}.optimizer.InlineCTE")
SCALA_BUILDER: JavaName[Callable[[], ScalaBuilder]] = JavaName("scala.collection.mutable.StringBuilder")
LOCAL_RELATION: ScalaName[_LocalRelations] = ScalaName(f"{CATALYST}.plans.logical.LocalRelation")
ONE_ROW: JavaName[Callable[[], LogicalPlan]] = JavaName(f"{CATALYST}.plans.logical.OneRowRelation")
JOIN: ScalaName[_Joins] = ScalaName(f"{CATALYST}.plans.logical.Join")
JOIN_HINTS: ScalaName[_JoinHints] = ScalaName(f"{CATALYST}.plans.logical.JoinHint")
LEFT_SEMI: ScalaName[JavaObject] = ScalaName(f"{CATALYST}.plans.LeftSemi")
RELATIONS: ScalaName[_Relations] = ScalaName("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
SUBQUERY_ALIAS: ScalaName[_SubqueryAliases] = ScalaName(f"{CATALYST}.plans.logical.SubqueryAlias")
PROJECT: ScalaName[_Projects] = ScalaName(f"{CATALYST}.plans.logical.Project")
REPARTITION: JavaName[Callable[[int, bool, LogicalPlan], object]] = JavaName(f"{CATALYST}.plans.logical.Repartition")
EXPRESSION_UTILS: ScalaName[_ExpressionUtils] = ScalaName("org.apache.spark.sql.classic.ExpressionUtils")
SAMPLE: JavaName[Callable[..., object]] = JavaName(f"{CATALYST}.plans.logical.Sample")
TREE_NODE_TAG: JavaName[Callable[[str], JavaObject]] = JavaName(f"{CATALYST}.trees.TreeNodeTag")
UNION: ScalaName[_Unions] = ScalaName(f"{CATALYST}.plans.logical.Union")


def optimizer_rule(jvm: Jvm, rule: Rule) -> PlanRule:
    """A rule of Spark's optimizer."""
    return cast(PlanRule, object_named(jvm, f"{CATALYST}.{rule}"))


def plan_json(jvm: Jvm, tree: TreeNode) -> str:
    """``tree.toJSON()`` in pieces: what is longer than a buffer of the gateway waits 40 ms for the network to agree."""
    return text_in_pieces(_json_builder(jvm).invokeWithArguments(java_list(jvm, [tree])))


@lru_cache(maxsize=1)
def _json_builder(jvm: Jvm) -> Any:
    """A method handle that writes the JSON of a tree into a StringBuilder, which stays in the JVM."""
    handles, types = (class_named(jvm, f"java.lang.invoke.{name}") for name in ("MethodHandles", "MethodType"))
    text, void = type_named(jvm, "java.lang.String"), class_named(jvm, "java.lang.Void").TYPE
    to_json = handles.publicLookup().findVirtual(type_named(jvm, _TREE_NODE), "toJSON", types.methodType(text))
    builder = handles.publicLookup().findConstructor(
        type_named(jvm, "java.lang.StringBuilder"), types.methodType(void, text)
    )
    return handles.filterReturnValue(to_json, builder)
