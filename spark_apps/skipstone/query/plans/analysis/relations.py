"""An Iceberg relation of a plan as the planner takes it: where it is, and its table, pinned to what Spark would read.

Used by ``state``. Its indexes are found through the catalog that Spark loaded it from. Must not plan reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple, cast

from propcache.api import cached_property
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from skipstone_core.indexing.hints import NO_HINT, IndexHint, read_hint

from skipstone.compat.catalyst import TREE_NODE_TAG, LogicalPlan, Relation
from skipstone.compat.icebergjava import (
    CHANGELOG,
    DATA_TABLES,
    PATH_IDENTIFIER,
    SPARK_TABLE,
    SPARK_TABLES,
    BaseTable,
    IcebergTable,
    SparkCatalog,
    SparkTable,
    TableOperations,
)
from skipstone.compat.icebergjava import TableMetadata as JavaMetadata
from skipstone.compat.java import JavaMap, JavaObject, Jvm, Option, is_some, items, java_class
from skipstone.compat.methods import Path, With, getter, values_at
from skipstone.query.plans.analysis.catalyst import Node, descend, expression_id, read_tree
from skipstone.query.plans.analysis.uses import Key, Scope, ancestors, key_of, names_any, open_scope
from skipstone.query.plans.catalogs import CLASS, SparkCatalogView, frozen_table, open_table
from skipstone.query.plans.refusals import Refusal, RelationRefused

_ROW_LINEAGE = frozenset({"_row_id", "_last_updated_sequence_number"})
_METADATA_COLUMNS = _ROW_LINEAGE | {"_file", "_pos", "_spec_id", "_partition", "_deleted"}
#: Read options that change how rows are read and not which.
_HARMLESS_OPTIONS = frozenset(
    {"path", "split-size", "lookback", "file-open-cost", "vectorization-enabled", "batch-size", "locality"}
)
#: The name of the tag by which a relation of a plan carries a hint; copies of a node keep its tags.
_HINT_TAG = "skipstone.hint"
_PROPERTIES: Path = (Relation.table, SparkTable.table, IcebergTable.properties)


@dataclass(frozen=True)
class IcebergRelation:
    """A relation with its table.

    ``snapshot_id``: None reads the head, in the table's own schema. ``schema``: what Spark reads it in.
    ``java``: the relation in the JVM; ``freeze``: makes ``frozen``. ``hint``: of the query, about its indexes.
    """

    name: str
    table: Table
    snapshot_id: int | None
    schema: Schema
    columns: Mapping[int, tuple[str, str]]
    java: Relation
    freeze: Callable[[], BaseTable]
    hint: IndexHint = NO_HINT

    @cached_property
    def frozen(self) -> BaseTable:
        """A Java table of that schema and of the metadata opened here."""
        return self.freeze()


def is_iceberg(jvm: Jvm, java: Relation) -> bool:
    """Return whether a relation is one of Iceberg's that was not rewritten yet."""
    return _table_class(jvm, java) in (SPARK_TABLE, CHANGELOG)


def _table_class(jvm: Jvm, java: Relation) -> str:
    return str(getter(jvm, Relation.table, *CLASS).apply(java))


class _Relation(NamedTuple):
    """The facts of a relation in the JVM and of its table, in the order of ``_OF_RELATION``."""

    name: str
    table_class: str
    has_no_catalog: bool
    has_no_name: bool
    options: Mapping[str, str]
    travels: bool
    snapshot_id: int | None
    branch: str | None
    encryption_key: str | None
    wap: str | None


_OF_RELATION: tuple[Path, ...] = (
    (Relation.table, SparkTable.table, IcebergTable.name),
    (Relation.table, SparkTable.table, JavaObject.getClass),
    (Relation.catalog, Option.isEmpty),
    (Relation.identifier, Option.isEmpty),
    (Relation.options,),
    (Relation.timeTravelSpec, Option.isDefined),
    (Relation.table, SparkTable.snapshotId),
    (Relation.table, SparkTable.branch),
    (*_PROPERTIES, With(JavaMap.get, "encryption.key-id")),
    (*_PROPERTIES, With(JavaMap.get, "write.wap.enabled")),
)


@dataclass(frozen=True, eq=False)
class OpenTable:
    """The table of a relation: ``table`` is what its metadata file says, as is ``current`` in the JVM.

    ``catalog``: the name of its catalog in the session.
    """

    java: BaseTable
    current: JavaMetadata
    table: Table
    name: str
    catalog: str


class QueryTables:
    """The tables of one query. Each is opened once, and its catalog asked once, so that all planning is of one moment;
    not to be kept for longer, as credentials grow old.
    """

    def __init__(self, jvm: Jvm) -> None:
        self.jvm = jvm
        self._catalogs: dict[str, SparkCatalogView] = {}
        self._opened: dict[int, OpenTable] = {}
        self._described: dict[int, _Relation] = {}

    def open(self, key: int, java: Relation) -> OpenTable:
        """The table of the relation with a key. Raises RelationRefused for what is not a table of rows."""
        table = self._opened.get(key)
        if table is None:
            table = self._opened[key] = self._open(java, self._describe(key, java).name)
        return table

    def open_relation(self, key: int, node: Node, java: Relation, wap_branch: str | None) -> IcebergRelation:
        """The relation with its table. ``wap_branch``: what the session reads instead of main.

        Raises RelationRefused.
        """
        description = self._describe(key, java)
        _require_plain_read(self.jvm, java, description, wap_branch)
        opened = self.open(key, java)
        pinned = _pin(self.jvm, java, opened, description)
        columns = _columns(node, pinned.schema)

        def freeze() -> BaseTable:
            return frozen_table(self.jvm, opened.java, opened.current, pinned.schema)

        return IcebergRelation(
            opened.name, opened.table, pinned.snapshot_id, pinned.schema, columns, java, freeze, hint_of(self.jvm, java)
        )

    def name(self, key: int, java: Relation) -> str:
        """The name of the table of the relation with a key."""
        try:
            return self._describe(key, java).name
        except RelationRefused:  # what is not a table of rows has a name, too
            return str(java.table().name())

    def snapshot_id(self, key: int, java: Relation) -> int | None:
        """The snapshot that Spark pinned; None where the table has none. Raises RelationRefused."""
        return self._describe(key, java).snapshot_id

    def _describe(self, key: int, java: Relation) -> _Relation:
        description = self._described.get(key)
        if description is None:
            if _table_class(self.jvm, java) == CHANGELOG:
                raise RelationRefused(Refusal.CHANGELOG_TABLE)
            description = self._described[key] = _Relation(*values_at(self.jvm, java, _OF_RELATION))
        if description.table_class not in DATA_TABLES:
            raise RelationRefused(Refusal.METADATA_TABLE)
        return description

    def _open(self, java: Relation, name: str) -> OpenTable:
        jvm = self.jvm
        catalog = str(getter(jvm, Relation.catalog, Option.get, SparkCatalog.name).apply(java))
        table: BaseTable = getter(jvm, Relation.table, SparkTable.table).apply(java)
        metadata: JavaMetadata = getter(jvm, BaseTable.operations, TableOperations.current).apply(table)
        # not the identifier of the relation: it may end in a selector such as branch_audit
        identifier = tuple(name.removeprefix(f"{catalog}.").split("."))
        opened = open_table(identifier, table, metadata, self._view(catalog, java))
        return OpenTable(table, metadata, opened, name, catalog)

    def _view(self, name: str, java: Relation) -> SparkCatalogView:
        view = self._catalogs.get(name)
        if view is None:
            view = self._catalogs[name] = SparkCatalogView(self.jvm, java.catalog().get().icebergCatalog())
        return view


def _require_plain_read(jvm: Jvm, java: Relation, description: _Relation, wap_branch: str | None) -> None:
    if description.has_no_catalog or description.has_no_name:
        raise RelationRefused(Refusal.NO_CATALOG)
    if getter(jvm, Relation.identifier, Option.get, *CLASS).apply(java) == PATH_IDENTIFIER:
        raise RelationRefused(Refusal.NO_CATALOG)
    if unknown := description.options.keys() - _HARMLESS_OPTIONS:
        raise RelationRefused(Refusal.READ_OPTION, f"option {min(unknown)}")
    if description.encryption_key:
        raise RelationRefused(Refusal.ENCRYPTED)
    if wap_branch and str(description.wap).lower() == "true":
        raise RelationRefused(Refusal.READ_OPTION, f"spark.wap.branch is {wap_branch}")


@dataclass(frozen=True)
class _Pinned:
    snapshot_id: int | None
    schema: Schema


def _pin(jvm: Jvm, java: Relation, opened: OpenTable, description: _Relation) -> _Pinned:
    """The snapshot that Spark pinned when it analyzed the query, and the schema it reads it in."""
    snapshot_id, metadata = description.snapshot_id, opened.table.metadata
    if snapshot_id is None:
        raise RelationRefused(Refusal.EMPTY)
    current = metadata.schema()
    if java.table().equals(java_class(jvm, SPARK_TABLES)(opened.java)):
        return _Pinned(None if metadata.current_snapshot_id == snapshot_id else snapshot_id, current)
    schema = _snapshot_schema(metadata, snapshot_id)
    travels = description.travels and description.branch is None
    if not travels and schema.fields != current.fields:
        raise RelationRefused(Refusal.SCHEMA_DIFFERS)
    return _Pinned(snapshot_id, schema)


def _snapshot_schema(metadata: TableMetadata, snapshot_id: int) -> Schema:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise RelationRefused(Refusal.FAILED, f"snapshot {snapshot_id} is not in the metadata any more")
    schemas = [schema for schema in metadata.schemas if schema.schema_id == snapshot.schema_id]
    return schemas[0] if schemas else metadata.schema()


def _columns(node: Node, schema: Schema) -> dict[int, tuple[str, str]]:
    types = {field.name: str(field.field_type) for field in schema.fields}
    attributes = [read_tree(tree) for tree in node.fields["output"]]
    names = {str(attribute.fields["name"]) for attribute in attributes}
    if unknown := names - types.keys() - _METADATA_COLUMNS:
        raise RelationRefused(Refusal.SCHEMA_DIFFERS, f"column {min(unknown)}")
    known = [(expression_id(attribute), str(attribute.fields["name"])) for attribute in attributes]
    return {number: (name, types[name]) for number, name in known if name in types}


def hint_of(jvm: Jvm, java: Relation) -> IndexHint:
    """The hint that a relation carries; NO_HINT if it has none."""
    hint = java.getTagValue(java_class(jvm, TREE_NODE_TAG)(_HINT_TAG))
    return read_hint(hint.get()) if is_some(hint) else NO_HINT


def put_hint(jvm: Jvm, java: Relation, hint: IndexHint) -> None:
    """Let a relation carry a hint, beside what it carries."""
    java.setTagValue(java_class(jvm, TREE_NODE_TAG)(_HINT_TAG), (hint_of(jvm, java) | hint).text())


# --- where relations are ---


@dataclass(frozen=True, eq=False)
class Site:
    """Where a relation is: in which plan, and its handle."""

    scope: Scope
    node: Node
    java: Relation


def sites_of(jvm: Jvm, query: Scope) -> dict[Key, list[Site]]:
    """Every place of each Iceberg relation of a query."""
    sites: dict[Key, list[Site]] = {}
    for scope in query.all():
        relations = frozenset(scope.relations)
        leaves = scope.handle().collectLeaves() if relations else None
        for at, node in enumerate(node for node in scope.tree.walk() if not node.children):
            java = cast(Relation, leaves.apply(at)) if leaves is not None and node in relations else None
            if java is not None and is_iceberg(jvm, java):
                sites.setdefault(key_of(node), []).append(Site(scope, node, java))
    return sites


def cached_keys(jvm: Jvm, analyzed: LogicalPlan, answered: LogicalPlan, relations: AbstractSet[Key]) -> frozenset[Key]:
    """Relations of which some use is answered from Spark's cache: ``answered`` has them less often than ``analyzed``.

    All ``relations``, if others are too.
    """
    before, after = (_counts(open_scope(jvm, plan)) for plan in (analyzed, answered))
    lost = frozenset(key for key, count in before.items() if after[key] < count)
    return frozenset(relations) if lost and not lost <= relations else lost


def _counts(query: Scope) -> Counter[Key]:
    return Counter(key_of(node) for scope in query.all() for node in scope.relations)


def require_stable(site: Site) -> None:
    """Refuse a relation when an expression above it would see other rows, or in another order, and answer otherwise."""
    if (lineage := _lineage_ids(site.node)) and names_any(site.scope, lineage):
        raise RelationRefused(Refusal.ROW_LINEAGE)
    above = ancestors(site.scope.tree, site.node)
    if any(node.name == "Sample" for node in above):
        raise RelationRefused(Refusal.SAMPLED)
    plan = site.scope.handle()
    if plan.deterministic():
        return
    for node in above:
        if not all(expression.deterministic() for expression in items(descend(plan, node.path).expressions())):
            raise RelationRefused(Refusal.NON_DETERMINISTIC)


def _lineage_ids(node: Node) -> frozenset[int]:
    """Ids of the columns of row lineage that a relation could give, which tasks made from JSON do not know.

    Spark adds all metadata columns to a relation when a query names one of them.
    """
    outputs = (read_tree(tree) for tree in node.fields["output"])
    return frozenset(expression_id(column) for column in outputs if column.fields["name"] in _ROW_LINEAGE)
