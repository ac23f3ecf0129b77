"""Spark's classes in the JVM: names of Catalyst and of Spark SQL, and the methods that we call of each.

Nothing here is public to Spark's users. A new version of Spark breaks in the test of this module, which looks up every
class and method, and not in the middle of a query. Must not decide anything.
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

_CATALYST = "org.apache.spark.sql.catalyst"
_EXECUTION = "org.apache.spark.sql.execution"
_TREE_NODE = f"{_CATALYST}.trees.TreeNode"
_LOGICAL_PLAN = f"{_CATALYST}.plans.logical.LogicalPlan"
_FUNCTION = "scala.Function1"
_SEQ = "scala.collection.immutable.Seq"
Tree = TypeVar("Tree", "LogicalPlan", "Expression")


class Rule(StrEnum):
    """The rules of Spark's optimizer that are singletons."""

    BOOLEAN_SIMPLIFICATION = "optimizer.BooleanSimplification"
    COLUMN_PRUNING = "optimizer.ColumnPruning"
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
    REPLACE_EXPRESSIONS = "optimizer.ReplaceExpressions"
    REWRITE_CORRELATED_SCALAR_SUBQUERY = "optimizer.RewriteCorrelatedScalarSubquery"
    REWRITE_PREDICATE_SUBQUERY = "optimizer.RewritePredicateSubquery"
    REWRITE_WITH_EXPRESSION = "optimizer.RewriteWithExpression"
    SIMPLIFY_CASTS = "optimizer.SimplifyCasts"
    UNWRAP_CAST_IN_BINARY_COMPARISON = "optimizer.UnwrapCastInBinaryComparison"


#: Classes that are known by their simple names, of nodes in the JSON of plans and of physical plans, by package.
NODES: Mapping[str, tuple[str, ...]] = {
    f"{_CATALYST}.plans.logical": (
        *("Aggregate", "AsOfJoin", "CollectMetrics", "CommandResult", "Except", "Filter", "GlobalLimit", "Intersect"),
        *("Join", "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Project", "Range"),
        *("Sample", "Sort", "Tail", "UnionLoop", "UnionLoopRef", "WithCTE"),
    ),
    f"{_CATALYST}.expressions": (
        *("Alias", "And", "AttributeReference", "Cast", "Coalesce", "EqualNullSafe", "EqualTo", "GreaterThan"),
        *("GreaterThanOrEqual", "In", "InSet", "IsNaN", "IsNotNull", "IsNull", "LessThan", "LessThanOrEqual"),
        *("Literal", "Not", "Or", "StartsWith"),
    ),
    f"{_CATALYST}.plans": ("ExistenceJoin",),
    f"{_CATALYST}.plans.physical": ("KeyGroupedPartitioning",),
    _EXECUTION: ("SubqueryAdaptiveBroadcastExec", "SubqueryBroadcastExec"),
    f"{_EXECUTION}.adaptive": ("AdaptiveSparkPlanExec",),
    f"{_EXECUTION}.datasources.v2": ("BatchScanExec", "DataSourceV2Relation", "DataSourceV2ScanRelation"),
    f"{_EXECUTION}.exchange": ("ShuffleExchangeExec",),
    f"{_EXECUTION}.joins": ("BroadcastHashJoinExec",),
}
#: Singletons that the JSON of a join shows.
JOIN_TYPES = ("Cross", "FullOuter", "Inner", "LeftAnti", "LeftOuter", "LeftSemi", "RightOuter")
JOIN_TYPE_PACKAGE = f"{_CATALYST}.plans"


# --- trees ---


@described(_TREE_NODE)
class TreeNode(JavaObject, Protocol):
    """A plan or an expression."""

    def fastEquals(self, other: TreeNode) -> bool: ...
    def makeCopy(self, fields: JavaObject) -> LogicalPlan: ...
    def productArity(self) -> int: ...
    def productElement(self, position: int) -> JavaObject: ...


@described(f"{_CATALYST}.expressions.Expression")
class Expression(TreeNode, Protocol):
    """An expression."""

    def children(self) -> Seq[Expression]: ...
    def deterministic(self) -> bool: ...
    def withNewChildren(self, children: Seq[Expression]) -> Expression: ...


@described(f"{_CATALYST}.expressions.PlanExpression")
class PlanExpression(Expression, Protocol):
    """An expression with a plan inside."""

    def plan(self) -> LogicalPlan: ...
    def withNewPlan(self, plan: LogicalPlan) -> Expression: ...


@described(f"{_CATALYST}.expressions.Literal")
class Literal(Expression, Protocol):
    """A literal; a day or a moment is a number."""

    def value(self) -> int: ...


@described(f"{_CATALYST}.expressions.InSet")
class InSet(Expression, Protocol):
    """A test for being in a set of literals."""

    def hset(self) -> LiteralSet: ...


@described("scala.collection.immutable.Set")
class LiteralSet(JavaObject, Protocol):
    """The literals of an InSet, as Catalyst holds them."""

    def size(self) -> int: ...
    def isEmpty(self) -> bool: ...
    def contains(self, value: None) -> bool: ...
    def excl(self, value: None) -> LiteralSet: ...
    def addString(self, builder: ScalaBuilder, separator: str) -> ScalaBuilder: ...


@described("scala.collection.mutable.StringBuilder")
class ScalaBuilder(JavaObject, Protocol):
    """A text that stays in the JVM."""

    def underlying(self) -> StringBuilder: ...


@described(f"{_CATALYST}.expressions.ExprId")
class ExprId(JavaObject, Protocol):
    """By which Catalyst knows an attribute."""

    def id(self) -> int: ...


@described(f"{_CATALYST}.expressions.Attribute")
class Attribute(Expression, Protocol):
    """A column of a plan."""

    def exprId(self) -> ExprId: ...


@described(_LOGICAL_PLAN)
class LogicalPlan(TreeNode, Protocol):
    """A logical plan."""

    def children(self) -> Seq[LogicalPlan]: ...
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


@described(f"{_CATALYST}.plans.logical.Statistics")
class Statistics(JavaObject, Protocol):
    """What Spark expects of a plan."""

    def sizeInBytes(self) -> int: ...


@described("org.apache.spark.sql.types.StructType")
class StructType(JavaObject, Protocol):
    """A schema."""

    def json(self) -> str: ...


@described("scala.collection.immutable.Seq")
class Rows(JavaObject, Protocol):
    """Rows in a plan."""

    def size(self) -> int: ...


@described(f"{_CATALYST}.plans.logical.LocalRelation")
class LocalRelation(LogicalPlan, Protocol):
    """Rows in a plan, as a relation."""

    def data(self) -> Rows: ...


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

    def readSchema(self) -> StructType: ...


# --- physical plans ---


@described(f"{_EXECUTION}.SparkPlan")
class SparkPlan(TreeNode, Protocol):
    """A physical plan."""

    def children(self) -> Seq[SparkPlan]: ...
    def executeCollect(self) -> JavaArray: ...
    def output(self) -> Seq[Attribute]: ...
    def outputPartitioning(self) -> JavaObject: ...
    def subqueriesAll(self) -> Seq[SparkPlan]: ...


@described(f"{_EXECUTION}.adaptive.AdaptiveSparkPlanExec")
class AdaptivePlan(SparkPlan, Protocol):
    """A physical plan that changes while it runs."""

    def initialPlan(self) -> SparkPlan: ...


@described(f"{_EXECUTION}.datasources.v2.BatchScanExec")
class BatchScan(SparkPlan, Protocol):
    """A scan of a table."""

    def runtimeFilters(self) -> Seq[RuntimeFilter]: ...


@described(f"{_CATALYST}.expressions.DynamicPruningExpression")
class RuntimeFilter(Expression, Protocol):
    """A filter of a scan that is known when the query runs."""

    def child(self) -> Expression: ...


@described(f"{_EXECUTION}.InSubqueryExec")
class InSubquery(Expression, Protocol):
    """A test for being among the rows of a subquery."""

    def plan(self) -> SparkPlan: ...


@described(f"{_EXECUTION}.SubqueryAdaptiveBroadcastExec")
class AdaptiveBroadcast(SparkPlan, Protocol):
    """A subquery that may be answered from what a join broadcasts."""

    def onlyInBroadcast(self) -> bool: ...


# --- sessions ---


@described(f"{_EXECUTION}.QueryExecution")
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
    def queryExecution(self) -> QueryExecution: ...
    def limit(self, rows: int) -> Dataset: ...


@described("org.apache.spark.sql.classic.SparkSession")
class JavaSession(JavaObject, Protocol):
    """A session in the JVM."""

    def sharedState(self) -> SharedState: ...


@described("org.apache.spark.sql.internal.SharedState")
class SharedState(JavaObject, Protocol):
    """What sessions share."""

    def cacheManager(self) -> CacheManager: ...


@described(f"{_EXECUTION}.CacheManager")
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


@described(f"{_CATALYST}.plans.logical.LocalRelation$")
class _LocalRelations(Protocol):
    def apply(
        self,
        output: Seq[Attribute],
        data: JavaObject,
        is_streaming: bool,  # noqa: FBT001 - as Spark has it
        stream: Option[JavaObject],
    ) -> LocalRelation: ...


@described(f"{_CATALYST}.plans.logical.Project$")
class _Projects(Protocol):
    def apply(self, expressions: Seq[Attribute], child: LogicalPlan) -> LogicalPlan: ...


@described("org.apache.spark.sql.classic.ExpressionUtils$")
class _ExpressionUtils(Protocol):
    def column(self, expression: Expression) -> JavaObject: ...


@described(f"{_CATALYST}.plans.logical.Union$")
class _Unions(Protocol):
    def apply(self, left: LogicalPlan, right: LogicalPlan) -> LogicalPlan: ...


@described(f"{_CATALYST}.rules.Rule")
class PlanRule(JavaObject, Protocol):
    """A rule of Spark's optimizer."""

    def apply(self, plan: LogicalPlan) -> LogicalPlan: ...


DATASETS: JavaName[_Datasets] = JavaName("org.apache.spark.sql.classic.Dataset")
SESSIONS: JavaName[_Sessions] = JavaName("org.apache.spark.sql.classic.SparkSession")
OPTIONS: JavaName[Callable[[JavaMap], JavaMap]] = JavaName("org.apache.spark.sql.util.CaseInsensitiveStringMap")
INLINE_CTE: JavaName[Callable[[bool, bool], PlanRule]] = JavaName(f"{_CATALYST}.optimizer.InlineCTE")
SCALA_BUILDER: JavaName[Callable[[], ScalaBuilder]] = JavaName("scala.collection.mutable.StringBuilder")
LOCAL_RELATION: ScalaName[_LocalRelations] = ScalaName(f"{_CATALYST}.plans.logical.LocalRelation")
PROJECT: ScalaName[_Projects] = ScalaName(f"{_CATALYST}.plans.logical.Project")
EXPRESSION_UTILS: ScalaName[_ExpressionUtils] = ScalaName("org.apache.spark.sql.classic.ExpressionUtils")
UNION: ScalaName[_Unions] = ScalaName(f"{_CATALYST}.plans.logical.Union")


def optimizer_rule(jvm: Jvm, rule: Rule) -> PlanRule:
    """A rule of Spark's optimizer."""
    return cast(PlanRule, object_named(jvm, f"{_CATALYST}.{rule}"))


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


# --- functions of Scala ---


def most_leaves(jvm: Jvm, plan: LogicalPlan) -> int:
    """Leaves of the largest expression of a plan and of the plans inside its expressions."""
    functions, plans = _functions(jvm), cast(Any, plan.subqueriesAll())
    expressions = plans.prepended(plan).flatMap(functions.expressions_below)
    return 0 if expressions.isEmpty() else int(expressions.map(functions.leaves).max(functions.order))


@lru_cache(maxsize=len(Rule))
def rule_everywhere(jvm: Jvm, rule: Rule) -> JavaObject:
    """A rule as the partial function of plans that ``transformDownWithSubqueries`` takes."""
    return _functions(jvm).rule(rule)


@lru_cache(maxsize=1)
def _functions(jvm: Jvm) -> _Functions:
    return _Functions(jvm)


class _Functions:
    """Functions of Scala, made of methods in the JVM: Python's own would be called back for every node."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._lookup = class_named(jvm, "java.lang.invoke.MethodHandles")
        node, sequence, function = (type_named(jvm, name) for name in (_TREE_NODE, _SEQ, _FUNCTION))
        below = self._method(node, "flatMap", sequence, function)
        own = self._function(self._method(type_named(jvm, f"{_CATALYST}.plans.QueryPlan"), "expressions", sequence))
        arguments = java_list(jvm, [own]).toArray()
        self.expressions_below = self._function(self._lookup.insertArguments(below, 1, arguments))
        leaves = self._method(node, "collectLeaves", sequence)
        size = self._method(sequence, "size", class_named(jvm, "java.lang.Integer").TYPE)
        self.leaves = self._function(self._lookup.filterReturnValue(leaves, size))
        self.order = object_named(jvm, "scala.math.Ordering$Int")

    def rule(self, name: Rule) -> JavaObject:
        """A rule of Catalyst as a partial function of plans."""
        rule: Any = optimizer_rule(self._jvm, name)
        plan = type_named(self._jvm, _LOGICAL_PLAN)
        applied = self._method(rule.getClass(), "apply", plan, plan).bindTo(rule)
        partial: JavaObject = object_named(self._jvm, "scala.PartialFunction").fromFunction(self._function(applied))
        return partial

    def _method(self, owner: Any, name: str, result: Any, *arguments: Any) -> Any:
        kinds = java_list(self._jvm, arguments)
        kind = class_named(self._jvm, "java.lang.invoke.MethodType").methodType(result, kinds)
        return self._lookup.publicLookup().findVirtual(owner, name, kind)

    def _function(self, handle: Any) -> Any:
        function = type_named(self._jvm, _FUNCTION)
        return class_named(self._jvm, "java.lang.invoke.MethodHandleProxies").asInterfaceInstance(function, handle)
