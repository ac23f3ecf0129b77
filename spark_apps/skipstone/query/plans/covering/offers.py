"""Which covering index holds what a query needs of a relation that it joins by the keys of the index.

Used by ``candidates``. Must not weigh what is gained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from skipstone_core.keys import is_bucketed

from skipstone.indexes.definition import EntryColumn
from skipstone.indexes.found import FoundIndex
from skipstone.query.plans.analysis.catalyst import Node, expression_id, output_ids
from skipstone.query.plans.analysis.relations import IcebergRelation
from skipstone.query.plans.analysis.uses import ancestors
from skipstone.query.plans.covering.equalities import Equality, EquiJoin

#: Spark's types of compared values whose hash is that of keys of each storage type. Integers are hashed as longs.
_COMPARED: Mapping[str, frozenset[str]] = {
    "boolean": frozenset({"boolean"}),
    "long": frozenset({"integer", "long"}),
    "date": frozenset({"date"}),
    "timestamp": frozenset({"timestamp_ntz"}),
    "timestamptz": frozenset({"timestamp"}),
    "string": frozenset({"string"}),
    "binary": frozenset({"binary"}),
}
#: Types of columns that Spark reads from entries as it reads them from the table.
_READ = re.compile(
    r"boolean|int|long|float|double|decimal\(\d+, ?\d+\)|date|timestamp|timestamptz|string|binary|fixed\[\d+\]"
)


@dataclass(frozen=True)
class HeldBy:
    """A column of a relation, by the id of its attribute: of what Iceberg type it is, and as what entries hold it."""

    number: int
    kind: str
    column: EntryColumn


@dataclass(frozen=True, eq=False)
class CoveringOffer:
    """A covering index of a relation, and the join by its keys.

    ``keys``: the key columns with the equality of each, in the order of the index. ``columns``: all that the query
    needs, keys included.
    """

    joined: EquiJoin
    index: FoundIndex
    keys: tuple[tuple[HeldBy, Equality], ...]
    columns: tuple[HeldBy, ...]

    @property
    def buckets(self) -> int:
        """How many buckets the index has."""
        return self.index.index.definition.buckets


def offers(
    tree: Node, relation: IcebergRelation, joins: Sequence[EquiJoin], indexes: Sequence[FoundIndex]
) -> Iterator[CoveringOffer]:
    """Yield the offers of the covering indexes of a relation for its joins, the nearest join and most keys first."""
    needed = needed_ids(tree, joins[0].relation)
    usable = [index for index in indexes if not index.replaced and index.covered.any()]
    for joined in joins:
        for index in sorted(usable, key=lambda candidate: -len(candidate.index.definition.columns)):
            held = _held(relation, index)
            keys = _keys(held, joined, index)
            if keys and needed <= held.keys():
                used = needed | {key.number for key, _ in keys}
                yield CoveringOffer(joined, index, keys, tuple(held[number] for number in sorted(used)))


def needed_ids(tree: Node, relation: Node) -> frozenset[int]:
    """Ids of the columns of a relation that the plan above it names."""
    known, named = frozenset(output_ids(relation)), set[int]()
    for node in reversed(ancestors(tree, relation)):
        if node.name not in {"Filter", "Project"}:
            return known
        named.update(_ids(node))
        if node.name == "Project":
            return known & named
    return known


def _ids(node: Node) -> Iterator[int]:
    for expression in node.expressions.values():
        yield from (expression_id(part) for part in expression.walk() if part.name == "AttributeReference")


def _held(relation: IcebergRelation, index: FoundIndex) -> dict[int, HeldBy]:
    """The columns of a relation that entries hold, by the ids of their attributes."""
    fields = {field.name: field.field_id for field in relation.schema.fields}
    held = {}
    for number, (name, kind) in relation.columns.items():
        column = index.columns.get(fields[name])
        if column is not None and _READ.fullmatch(kind):
            held[number] = HeldBy(number, kind, column)
    return held


def _keys(held: Mapping[int, HeldBy], joined: EquiJoin, index: FoundIndex) -> tuple[tuple[HeldBy, Equality], ...]:
    """The keys of an index with the equalities of a join; none when the join has no such equality of one of them."""
    keys = [column for column in index.columns.values() if column.is_key]
    by_name = {holder.column.name: holder for holder in held.values() if holder.column.is_key}
    keyed = [(by_name.get(key.name), key) for key in keys]
    pairs = [(holder, joined.columns.get(holder.number)) for holder, _ in keyed if holder is not None]
    fit = tuple(
        (holder, equality) for holder, equality in pairs if equality is not None and _is_hashed(holder, equality)
    )
    return fit if len(fit) == len(keys) else ()


def _is_hashed(key: HeldBy, equality: Equality) -> bool:
    """Return whether Spark hashes what is compared as the key is hashed."""
    if not is_bucketed(key.kind):
        return False
    if key.kind.startswith("decimal"):
        return equality.kind.replace(" ", "") == key.kind.replace(" ", "")
    return equality.kind in _COMPARED.get(key.column.storage, frozenset())
