"""The calls of notebook users: run SQL through indexes, rewrite a DataFrame, explain, or do without.

Called as ``skipstone.sql`` and so on. Whatever goes wrong on our side gives the DataFrame as it was and a warning with
a code. Must not decide which files are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from skipstone_core.indexing import use as index_use
from skipstone_core.indexing.limits import SETTINGS, read_limits

from skipstone.compat.catalyst import DATASETS, SESSIONS, Dataset, JavaSession, QueryExecution
from skipstone.compat.java import Jvm, java_class
from skipstone.compat.outlines.compiling import Outliner, few_rows, outline_of, outliner, settings_of
from skipstone.compat.partitioning import session_settings
from skipstone.compat.pyspark import (
    ClassicDataFrame,
    FrontFrame,
    JvmFrame,
    java_frame,
    java_session,
    jvm,
    plain_frame,
    running_frame,
)
from skipstone.query.plans.cost import ONE_TASK_ROWS
from skipstone.query.plans.explanation import Explanation, RelationExplanation
from skipstone.query.plans.fallback import or_else
from skipstone.query.plans.hints import with_hints_of_text
from skipstone.query.plans.leaving.decision import find_left
from skipstone.query.plans.optimizer import RULES, OptimizedQuery, optimize
from skipstone.query.plans.refusals import Refusal, RelationRefused
from skipstone.query.plans.replacing.choice import ReadLimits
from skipstone.query.plans.replacing.driver import DriverReadLimits
from skipstone.query.plans.replacing.staging import Staging
from skipstone.query.plans.rules.no_index_applies import NoIndexApplies
from skipstone.query.plans.state import Session

logger = logging.getLogger("skipstone.query")

#: Session settings: whether queries are rewritten, the namespace of index tables that are not beside their table, how
#: many rows of a relation the driver reads at most (0: none), whether tasks read indexes, how many rows one side of a
#: join has at most when it runs first (0: none does), for how many seconds it is remembered which indexes a table has
#: (0: not at all), and whether the rule with the name that follows is applied.
ENABLED = "skipstone.enabled"
INDEX_NAMESPACE = "skipstone.indexNamespace"
DRIVER_ROWS = "skipstone.driverRows"
INDEX_SCANS = "skipstone.indexScans"
JOIN_ROWS = "skipstone.joinRows"
REMEMBERED_SECONDS = "skipstone.rememberedSeconds"
_OWN = (ENABLED, INDEX_NAMESPACE, DRIVER_ROWS, INDEX_SCANS, JOIN_ROWS, REMEMBERED_SECONDS)
RULE = "skipstone.rules."
_PREFIX, _WAP_BRANCH = "skipstone.", "spark.wap.branch"
#: Settings of Spark's that count, too.
_OTHERS = (_WAP_BRANCH,)
_KNOWN = frozenset({*_OWN, *(each.name for each in SETTINGS)})
#: What a parameter of a query may be: whatever Spark takes.
_Argument = TypeVar("_Argument")
#: The plans of a DataFrame.
_ExecutionOf = Callable[[DataFrame], QueryExecution]


class _RewrittenFrame(JvmFrame):
    """A DataFrame that Spark has planned already. To be read from Spark's cache it must be planned after caching."""

    def cache(self) -> DataFrame:
        """As the super class; what is run from here on is read from the cache."""
        self._plan_again()
        return super().cache()

    def persist(self, storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> DataFrame:
        """As the super class; what is run from here on is read from the cache."""
        self._plan_again()
        return super().persist(storageLevel)

    def _plan_again(self) -> None:
        datasets = java_class(jvm(self.sparkSession), DATASETS)
        plan = java_frame(self).queryExecution().logical()
        self.replace_java(datasets.ofRows(java_session(self.sparkSession), plan))


@dataclass(frozen=True)
class _Rewritten:
    """The facts of a rewritten DataFrame. ``untransformed``: makes one of the same rows in which no part ran first
    and no bucket is joined; None when none is.
    """

    original: DataFrame
    explanation: Explanation
    untransformed: Callable[[], Dataset] | None


_rewritten: WeakKeyDictionary[DataFrame, _Rewritten] = WeakKeyDictionary()
_without_index: WeakSet[DataFrame] = WeakSet()
#: The problems with settings that each session was warned of.
_warned: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


def sql(
    spark: SparkSession,
    /,
    sqlQuery: str,
    args: dict[str, _Argument] | list[_Argument] | None = None,
    **kwargs: object,
) -> DataFrame:
    """``spark.sql`` with the indexes of the tables it reads, and the same arguments. Raises what ``spark.sql`` raises.

    ``kwargs``: what braces in the query stand for, such as DataFrames.
    """
    return rewrite(with_hints_of_text(spark.sql(sqlQuery, args, **kwargs), sqlQuery))


def rewrite(df: DataFrame) -> DataFrame:
    """A DataFrame with the same answer that reads fewer files; ``df`` itself when there is nothing to gain.

    It reads the snapshots, and knows the time, of this call. DataFrames made from it know all that ``df`` knows.
    """
    if df in _rewritten:
        return df
    rewritten = _rewrite(df, _as_of_now)[0]
    known = _rewritten.get(rewritten)
    if known is None or known.untransformed is None:
        return rewritten
    front = FrontFrame(rewritten, known.untransformed)
    _rewritten[front] = known
    return front


def rewrite_to_run(df: DataFrame) -> DataFrame:
    """As ``rewrite``, to be run and not to be built upon."""
    return _rewrite(df, _as_of_now)[0]


def rewrite_at_risk(df: DataFrame) -> DataFrame:
    """As ``rewrite_to_run`` where Iceberg may lose rows of ``df``, else ``df`` itself."""
    optimized = _try(df, _as_of_now, in_full=False).optimized if df not in _rewritten else None
    return rewrite_to_run(df) if optimized and optimized.is_at_risk else df


def rewrite_as_run(df: DataFrame) -> DataFrame:
    """As ``rewrite``, but of the snapshots that Spark itself reads when it runs ``df``.

    These are the ones of the first time that it ran, or was explained: Spark plans a DataFrame once.
    """
    return _rewrite(df, _as_run)[0]


def explain_as_run(df: DataFrame) -> tuple[DataFrame, Explanation]:
    """As ``rewrite_as_run``, with the explanation in full."""
    return _rewrite(df, _as_run, in_full=True)


def explain(df: DataFrame) -> Explanation:
    """Return how ``rewrite`` plans, or planned, each relation of ``df``, and why; ``print`` shows it as text."""
    known = _rewritten.get(df)
    return known.explanation if known else _try(df, _as_of_now, in_full=True).explanation


def no_index(df: DataFrame) -> DataFrame:
    """``df`` read as Spark reads it: what ``rewrite`` was given, and what it will leave as it is.

    A DataFrame of Spark Connect is always that.
    """
    if not isinstance(df, ClassicDataFrame):
        return df
    known = _rewritten.get(df)
    plain = known.original if known else plain_frame(java_frame(df), df.sparkSession)
    _without_index.add(plain)
    return plain


def is_settled(df: DataFrame) -> bool:
    """Return whether ``df`` is what ``rewrite`` made, or what ``no_index`` gave."""
    return df in _rewritten or df in _without_index


def _rewrite(df: DataFrame, execution_of: _ExecutionOf, *, in_full: bool = False) -> tuple[DataFrame, Explanation]:
    if known := _rewritten.get(df):
        return running_frame(df), known.explanation
    optimized, explanation = _try(df, execution_of, in_full=in_full)
    for relation in explanation.relations:
        logger.info("%s", relation.line())
        if relation.plan and relation.plan.unknown:
            names = ", ".join(relation.plan.unknown)
            logger.warning("a hint names %s, but %s has no such index: see skipstone.explain", names, relation.table)
    for rule in explanation.rules:
        logger.debug("%s", rule.text())
    if optimized is None or optimized.dataset is None:
        return df, explanation
    dataset, untransformed = optimized.dataset, optimized.untransformed if optimized.is_transformed else None
    rewritten = _RewrittenFrame(dataset, df.sparkSession)
    if not in_full and optimized.reads_few and (evaluated := _evaluated(df.sparkSession, dataset)) is not None:
        # what is built upon it may name columns that the answer does not have
        rewritten, untransformed = _RewrittenFrame(evaluated, df.sparkSession), untransformed or (lambda: dataset)
    _rewritten[rewritten] = _Rewritten(df, explanation, untransformed)
    return rewritten, explanation


def _evaluated(spark: SparkSession, dataset: Dataset) -> Dataset | None:
    """A Dataset of the rows that ``dataset`` gives, which are few and were computed here; None where a job does that.

    What fails here fails again when it runs, as in Spark.
    """
    few = few_rows(jvm(spark), ONE_TASK_ROWS)
    if few is None:
        return None
    return or_else(
        lambda: few.evaluated(java_session(spark), dataset), lambda _: None, "a job runs a query", logging.DEBUG
    )


def _as_run(df: DataFrame) -> QueryExecution:
    """Return the execution of ``df``: Spark pins tables and cached data when it first plans it."""
    return java_frame(df).queryExecution()


def _as_of_now(df: DataFrame) -> QueryExecution:
    """Return the execution of a copy of ``df``, so that nothing is pinned for ``df``."""
    if (compiled := _compiled(jvm(df.sparkSession))) is not None:
        return compiled.copied(java_session(df.sparkSession), java_frame(df))
    datasets = java_class(jvm(df.sparkSession), DATASETS)
    # of which Spark has run the commands: a plan that still holds them would run them again
    plan = java_frame(df).queryExecution().commandExecuted()
    return datasets.ofRows(java_session(df.sparkSession), plan).queryExecution()


class _Tried(NamedTuple):
    """The query after planning, None when it was not planned, and the explanation."""

    optimized: OptimizedQuery | None
    explanation: Explanation


def _try(df: DataFrame, execution_of: _ExecutionOf, *, in_full: bool) -> _Tried:
    def unless_refused() -> _Tried:
        try:
            return _optimized(df, execution_of, in_full=in_full)
        except RelationRefused as refused:
            return _Tried(None, Explanation(refusal=refused.refusal, detail=refused.detail))

    def failed(text: str) -> _Tried:
        return _Tried(None, Explanation(refusal=Refusal.FAILED, detail=text))

    return or_else(unless_refused, failed, f"{Refusal.FAILED.value}: the query runs without indexes")


def _optimized(df: DataFrame, execution_of: _ExecutionOf, *, in_full: bool) -> _Tried:
    session = _session(df)
    execution = execution_of(df)
    if not in_full and (left := _left(session, execution)) is not None:
        return _Tried(None, Explanation(left, problems=session.problems))
    with _active(session):
        optimized = optimize(session, execution.tableVersionsRefreshed(), execution, in_full=in_full)
        return _Tried(optimized, optimized.explanation)


def _compiled(jvm: Jvm) -> Outliner | None:
    return outliner(jvm, _PREFIX, _OTHERS)


def _left(session: Session, execution: QueryExecution) -> tuple[RelationExplanation, ...] | None:
    """Why relations are left to Spark, where what is remembered of their tables says it; None: nobody knows yet."""
    compiled, limits = _compiled(session.jvm), session.limits
    if compiled is None or not limits.remembers or NoIndexApplies.__name__ in session.disabled:
        return None
    outline = outline_of(compiled, session.java, execution)
    return find_left(outline, limits.index_namespace, limits.remembers)


def _session(df: DataFrame) -> Session:
    """The session of a DataFrame. Raises RelationRefused when its queries are not rewritten."""
    if not isinstance(df, ClassicDataFrame):
        raise RelationRefused(Refusal.SPARK_CONNECT)
    spark = df.sparkSession
    java = java_session(spark)
    settings, parallelism = _settings(spark, java)
    if not _is_on(settings, ENABLED) or df in _without_index:
        raise RelationRefused(Refusal.SWITCHED_OFF)
    problems: list[str] = []
    cost, misread = read_limits(settings)
    driver_rows = _rows(settings, DRIVER_ROWS, index_use.DRIVER_ROWS, problems)
    join_rows = _rows(settings, JOIN_ROWS, index_use.JOIN_ROWS, problems)
    disabled = _disabled(settings, problems)
    driver = DriverReadLimits(driver_rows, parallelism, most_bytes=cost.driver_bytes)
    remembers = _seconds(settings, problems)
    limits = ReadLimits(driver, settings.get(INDEX_NAMESPACE), _is_on(settings, INDEX_SCANS), cost, remembers)
    staging, wap_branch = Staging(jvm(spark)), settings.get(_WAP_BRANCH)
    problems += [*misread, *_unknown(settings)]
    _warn_once(spark, problems)
    return Session(jvm(spark), spark, java, wap_branch, limits, staging, join_rows, disabled, tuple(problems))


def _warn_once(spark: SparkSession, problems: Sequence[str]) -> None:
    """Log a warning for each problem that the session was not warned of before: each action reads all settings."""
    warned = _warned.setdefault(spark, set())
    for problem in problems:
        if problem not in warned:
            logger.warning("%s", problem)
    warned.update(problems)


def _settings(spark: SparkSession, java: JavaSession) -> tuple[Mapping[str, str], int]:
    """The settings of a session that count, and how many tasks it runs at a time."""
    compiled = _compiled(jvm(spark))
    if compiled is None:
        return session_settings(jvm(spark), java), spark.sparkContext.defaultParallelism
    known = settings_of(compiled, java)
    return known["settings"], known["parallelism"]


def _unknown(settings: Mapping[str, str]) -> Iterator[str]:
    """A sentence on each setting that has our prefix and is none of ours: its name is misspelled."""
    for name in sorted(settings):
        if name.startswith(_PREFIX) and not name.startswith(RULE) and name not in _KNOWN:
            yield f"{name} is set, but there is no such setting: use one of {', '.join(sorted(_KNOWN))}"


def _is_on(settings: Mapping[str, str], setting: str) -> bool:
    return settings.get(setting, "true").lower() != "false"


def _disabled(settings: Mapping[str, str], problems: list[str]) -> frozenset[str]:
    """The names of the rules that are not applied."""
    names = {rule.__name__ for rule in RULES}
    settings_of = {key.removeprefix(RULE): key for key in settings if key.startswith(RULE)}
    for name in settings_of.keys() - names:
        problems.append(f"{RULE}{name} is set, but there is no such rule: use {', '.join(sorted(names))}")
    return frozenset(name for name, key in settings_of.items() if name in names and not _is_on(settings, key))


@contextmanager
def _active(session: Session) -> Iterator[None]:
    """Make ``session`` the one that Spark's rules and expressions take their settings from, for this thread.

    A thread may have used another one since the query was made, with another time zone for instance.
    """
    if (compiled := _compiled(session.jvm)) is not None:
        previous = compiled.enter(session.java)
        try:
            yield
        finally:
            compiled.leave(previous)
        return
    sessions = java_class(session.jvm, SESSIONS)
    before = sessions.getActiveSession()
    sessions.setActiveSession(session.java)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _seconds(settings: Mapping[str, str], problems: list[str]) -> float:
    text = settings.get(REMEMBERED_SECONDS, str(index_use.REMEMBERED_SECONDS))
    if not text.isdecimal():
        problems.append(f"{REMEMBERED_SECONDS} is {text!r}, not a number of seconds: it counts as 0")
    return float(text) if text.isdecimal() else 0.0


def _rows(settings: Mapping[str, str], setting: str, usual: int, problems: list[str]) -> int:
    text = settings.get(setting, str(usual))
    if not text.isdecimal():
        problems.append(f"{setting} is {text!r}, not a number of rows: it counts as 0")
    return int(text) if text.isdecimal() else 0
