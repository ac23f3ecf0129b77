"""Tells by one call to the JVM, and by what is remembered of tables, that no index can serve a query.

Called by ``session`` before a query is planned. Says so only when that is certain: everything else is looked at by the
rules, ``no_index_applies`` first. Must not open tables.
"""

from __future__ import annotations

from skipstone.compat.icebergjava import DATA_TABLES, SPARK_TABLE
from skipstone.compat.outlines.compiling import QueryOutline, RelationOutline
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.guarding.conditioned import KEEP_IDS
from skipstone.query.plans.leaving.facts import CatalogTable, known_facts, known_fields
from skipstone.query.plans.refusals import Refusal

_ICEBERG = "org.apache.iceberg."


def find_left(
    outline: QueryOutline, index_namespace: str | None, seconds: float
) -> tuple[RelationExplanation, ...] | None:
    """Why each relation of a query is left to Spark; None when one of them has to be looked at.

    ``seconds``: how long is remembered which indexes there are.
    """
    relations = [known for known in outline["relations"] if known["kind"].startswith(_ICEBERG)]
    if not relations:
        return ()
    if outline["is_streaming"] or not KEEP_IDS.issuperset(outline["nodes"]):
        return None
    reasons: list[RelationExplanation] = []
    for relation in relations:
        reason = _reason(relation, index_namespace, seconds)
        if reason is None:
            return None
        reasons.append(reason)
    return tuple(reasons)


def _reason(relation: RelationOutline, index_namespace: str | None, seconds: float) -> RelationExplanation | None:
    """Why a relation of a table of rows that a catalog knows is left; None for any other one."""
    is_table = relation["kind"] == SPARK_TABLE and relation["table_kind"] in DATA_TABLES
    if not is_table or relation["catalog"] is None or "location" not in relation:
        return None
    facts = known_facts(relation["location"], relation["snapshot_id"])
    name = CatalogTable(relation["catalog"], relation["name"], relation["uuid"], index_namespace)
    fields = known_fields(name, seconds)
    if facts is None or fields is None or facts.has_filters:
        return None
    asked = relation["asked"]
    is_at_risk = relation["has_float"] or facts.lacks_bounds or not facts.at_risk.isdisjoint(asked)
    if asked and (is_at_risk or not facts.names(fields).isdisjoint(asked)):
        return None
    return RelationExplanation(relation["name"], Refusal.INDEX_NOT_USED if fields else Refusal.NO_INDEX)
