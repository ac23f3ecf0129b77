"""Random tables, feeds of changes and clause lists for the merge tests.

Used by the random merge tests only. A merge comes twice: as the task that users would write, and as the reference's own
model of it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
)
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.keys import KeyType, key_type
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.predicates import check_types
from skipstone_core.merging.merges import MergeColumn

from tests.spark.index_bed import Lake
from tests.unit.bloom_beds import filter_properties
from tests.unit.merge_reference import Clause, Merge, Refused, Row, When
from tests.unit.query_lake import RandomLake, iceberg_type
from tests.unit.query_values import KINDS, Conditions, Kind, random_values
from tests.unit.scalar_keys import normalize
from tests.unit.scalar_predicates import evaluate

FOUR_KILOBYTES = "😀" * 1024
POOL: Mapping[str, Kind] = {
    **KINDS,
    "text": Kind(
        pa.string(),
        (
            "x",
            FOUR_KILOBYTES,
            FOUR_KILOBYTES[:-1] + "\uffff",
            FOUR_KILOBYTES + "a",
            "x" * 4096,
            "x" * 4095 + "\U0001f600",
        ),
        ("'x'", f"'{FOUR_KILOBYTES[:20]}'", "'\uffff'"),
        ("x", "😀", "x" * 40),
    ),
    "fixed": Kind(pa.binary(16), (b"\x00" * 16, b"\xff" * 16, bytes(range(16))), ()),
}
#: Kinds of source columns that can be keys for a table column of a kind.
KEY_KINDS = {
    "int": ("int", "long"),
    "long": ("long", "int"),
    "float": ("float", "double"),
    "double": ("double", "float"),
    "decimal": ("decimal", "wide_decimal"),
    "wide_decimal": ("wide_decimal", "decimal"),
}
TRANSFORMS: Mapping[str, tuple[Transform[Any, Any], ...]] = {
    "int": (IdentityTransform(), BucketTransform(3), TruncateTransform(4)),
    "long": (IdentityTransform(), BucketTransform(3), TruncateTransform(4)),
    "string": (IdentityTransform(), BucketTransform(3), TruncateTransform(1)),
    "text": (BucketTransform(3), TruncateTransform(2)),
    "date": (IdentityTransform(), MonthTransform(), BucketTransform(2)),
    "timestamp": (DayTransform(), MonthTransform()),
    "timestamptz": (DayTransform(), BucketTransform(2)),
    "boolean": (IdentityTransform(),),
    "decimal": (IdentityTransform(), TruncateTransform(111), BucketTransform(2)),  # 111 divides the extremes: they fit
}
STEPS = (
    *("add_rows",) * 8,
    *("delete_positions",) * 3,
    *("delete_equal",) * 2,
    *("add_index", "sync_index") * 2,
    *("rewrite_files", "add_column", "widen_column", "rename_column", "replace_column"),
)
METRICS = ("full", "truncate(16)", "truncate(16)", "truncate(1)", "counts", "none")
OPERATIONS = ("I", "U", "D", None)
STRING, LONG = KINDS["string"], KINDS["long"]


def random_table(root: Path, seed: int, pool: Mapping[str, Kind] = POOL) -> RandomLake:
    """A table with a random past; the same for the same seed."""
    random = Random(seed)
    kinds = {f"c{n}": random.choice(sorted(pool)) for n in range(random.randint(2, 5))}
    made = RandomLake(Lake(root), random, kinds, pool, sizes=(1, 4, 12))
    fitting = [name for name, kind in kinds.items() if kind in TRANSFORMS]
    made.partitioned_by = random.choice(fitting) if fitting and random.random() < 0.35 else None
    groups, metrics = str(random.choice([4, 16, 64])), random.choice(METRICS)
    properties = {"write.parquet.row-group-limit": groups, "write.metadata.metrics.default": metrics}
    properties |= filter_properties(seed, kinds)
    made.lake.create(made.schema, properties=properties)
    if made.partitioned_by:
        transform = random.choice(TRANSFORMS[kinds[made.partitioned_by]])
        with made.table.update_spec() as update:
            update.add_field(made.partitioned_by, transform, "part")
    for step in random.choices(STEPS, k=random.randint(1, 5)):
        made.step(step)
    return made


@dataclass(frozen=True)
class Feed:
    """Changes: ``kinds`` of their columns, ``keys`` as pairs of table and source column.

    ``partial``: rows lack some of the columns.
    """

    kinds: Mapping[str, str]
    keys: tuple[tuple[str, str], ...]
    rows: list[Row]
    sequence: str | None
    stored: str | None
    partial: bool = False

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the changes."""
        return pa.schema([(name, POOL[kind].type) for name, kind in self.kinds.items()])


def random_feed(lake: RandomLake, random: Random) -> Feed:
    """Changes for a table: keys that are in it, keys that are not, nulls, several changes of a key in any order."""
    table = {"id": "long", **lake.kinds}
    named = random.sample(sorted(table), random.randint(1, min(4, len(table))))
    keys = tuple((name, f"k{n}") for n, name in enumerate(named))
    kinds = {key: random.choice(KEY_KINDS.get(table[name], (table[name],))) for name, key in keys}
    kinds |= {name: kind for name, kind in table.items() if random.random() < 0.7}
    sequences = [name for name, kind in table.items() if kind in ("int", "long", "timestamp", "string", "double")]
    stored = random.choice(sequences) if random.random() < 0.4 else None
    kinds |= {"op": "string", "seq": table[stored] if stored else "long"}
    sequence = "seq" if stored or random.random() < 0.85 else None
    count = random.choice([0, 1, 2, 4, 8, 16])
    columns = {name: random_values(random, POOL[kind], count) for name, kind in kinds.items()}
    rows = [{name: values[n] for name, values in columns.items()} for n in range(count)]
    live = lake.rows().to_pylist()
    for row in rows:
        row["op"] = random.choice(OPERATIONS)
        if live and random.random() < 0.6:
            row.update(_key_of(random.choice(live), keys, kinds))
    made = Feed(kinds, keys, rows, sequence, stored, partial=random.random() < 0.5)
    for row in rows[1:] if made.partial else ():
        if random.random() < 0.5:
            other = random.choice(rows)
            row.update({key: other[key] for _, key in keys})
    typed = _told_apart(pa.Table.from_pylist(rows, schema=made.schema).to_pylist(), made, lake, random)
    return replace(made, rows=[_part(row, made, random) for row in typed] if made.partial else typed)


def _part(row: Row, feed: Feed, random: Random) -> Row:
    """A row without some of its columns."""
    needed = {"seq", *(key for _, key in feed.keys)}
    return {name: value for name, value in row.items() if name in needed or random.random() < 0.6}


def _key_of(row: Row, keys: tuple[tuple[str, str], ...], kinds: Mapping[str, str]) -> Row:
    """The source columns that match a row of the table, where they can hold its values."""
    found = {}
    for name, key in keys:
        try:
            found[key] = pa.scalar(row.get(name), POOL[kinds[key]].type).as_py()
        except (pa.ArrowInvalid, OverflowError):
            return {}
    return found


def _told_apart(rows: list[Row], feed: Feed, lake: RandomLake, random: Random) -> list[Row]:
    """Rows of one key get sequences of their own: ties are told by content, which is tested elsewhere."""
    key, sequences = key_function(feed, lake, "source"), POOL[feed.kinds["seq"]].values
    values = list({repr(normalize(v, key_type_of(feed.kinds["seq"]))): v for v in (*sequences, *range(-9, 9))
                   if not isinstance(v, int) or feed.kinds["seq"] in ("int", "long")}.values())  # fmt: skip
    used: dict[Any, list[object]] = {}
    kept = []
    for row in rows:
        free = used.setdefault(key(row), random.sample([*values, None], len(values) + 1))
        if free:
            kept.append({**row, "seq": free.pop()})
    return kept


def key_type_of(kind: str) -> KeyType:
    """How values of a kind compare."""
    found = key_type(str(iceberg_type(POOL[kind].type)))
    assert found is not None
    return found


def key_function(feed: Feed, lake: RandomLake, side: str) -> Any:
    """Rows of one side to their key."""
    table = {"id": "long", **lake.kinds}
    types = [(name, key, key_type_of(table[name]).common(key_type_of(feed.kinds[key]))) for name, key in feed.keys]

    def key(row: Row) -> Any:
        values = [(row.get(name if side == "target" else key), kind) for name, key, kind in types]
        return None if any(v is None for v, _ in values) else tuple(normalize(v, kind) for v, kind in values)

    return key


# --- clauses ---


@dataclass(frozen=True)
class Clauses:
    """Random clauses, each as users write it and as the reference has it."""

    lake: RandomLake
    feed: Feed
    random: Random

    def some(self, role: str, *, most: int) -> tuple[list[MergeClause], list[Clause]]:
        """Up to ``most`` clauses of a list; only the last may be without condition."""
        count = self.random.randint(0, most)
        pairs = [self.clause(role, is_last=n == count - 1) for n in range(count)]
        return [written for written, _ in pairs], [meant for _, meant in pairs]

    def clause(self, role: str, *, is_last: bool) -> tuple[MergeClause, Clause]:
        """One clause of the list ``role``."""
        text = None if is_last and self.random.random() < 0.5 else self.condition(role)
        when = self.meaning(text)
        if role == "not_matched":
            chosen = self.assignments(role, by_name=True)
            return MergeClause(action=MergeAction.INSERT, when=text, values=chosen[0]), Clause(when, chosen[1])
        if self.random.random() < 0.4:
            meant = Clause(when, None, always=text is None, asks_table="target." in (text or ""))
            return MergeClause(action=MergeAction.DELETE, when=text), meant
        chosen = self.assignments(role, by_name=role == "matched")
        present = self.feed.partial and role == "matched" and chosen[0] is None
        written = MergeClause(action=MergeAction.UPDATE, when=text, values=chosen[0], present=present or None)
        return written, Clause(when, chosen[1], present, asks_table="target." in (text or ""))

    def condition(self, role: str) -> str:
        """A condition on the columns that the list may name; often on what the feed says."""
        if role != "by_source" and self.random.random() < 0.3:
            return self.random.choice(["source.op = 'D'", "source.op != 'D'", "source.op in ('I', 'U')"])
        columns = {f"target.{name}": kind for name, kind in self.lake.columns.items()}
        sources = {f"source.{name}": POOL[kind] for name, kind in self.feed.kinds.items()}
        named = {"matched": {**columns, **sources}, "not_matched": sources, "by_source": columns}[role]
        return Conditions(self.random, named).condition(2)

    def meaning(self, text: str | None) -> When:
        """The condition as the core defines it for one row."""
        if text is None:
            return lambda _: True
        table = {"id": LONG, **self.lake.columns}
        types = {f"target.{name}": str(iceberg_type(kind.type)) for name, kind in table.items()}
        types |= {f"source.{name}": str(iceberg_type(POOL[kind].type)) for name, kind in self.feed.kinds.items()}
        checked = check_types(parse_predicate(text), types)
        empty = dict.fromkeys(types)
        return lambda row: evaluate(checked, empty | row) is True

    def assignments(self, role: str, *, by_name: bool) -> tuple[dict[str, str] | None, dict[str, tuple[str, Any]]]:
        """What is written: by name, or chosen columns from source columns, literals and expressions."""
        table, feed = {"id": "long", **self.lake.kinds}, self.feed
        always = {} if feed.stored is None or role == "by_source" else {feed.stored: ("source", "seq")}
        found = {name: ("source", name) for name in table if name in feed.kinds}
        keys = {name for name, _ in feed.keys}
        # a clause that finds no column but keys is refused
        if by_name and self.random.random() < 0.5 and found.keys() - keys - {feed.stored}:
            if role == "not_matched":
                found |= {name: ("source", key) for name, key in feed.keys}
            return None, found | always
        texts, meant = {}, {}
        for name in self.random.sample(sorted(table), self.random.randint(1, min(3, len(table)))):
            if name in always:
                continue
            equal = [column for column, kind in feed.kinds.items() if kind == table[name]]
            if self.random.random() < 0.3 and (computed := self.computed(role, table[name])):
                texts[name], meant[name] = computed[0], ("computed", computed[1])
            elif role != "by_source" and equal and self.random.random() < 0.6:
                column = self.random.choice(equal)
                texts[name], meant[name] = self.random.choice([column, f"source.{column}"]), ("source", column)
            else:
                value = self.random.choice([*POOL[table[name]].values, None])
                texts[name], value = literal_text(value)
                meant[name] = ("literal", value)
        if not texts:
            return self.assignments(role, by_name=by_name)
        return texts, meant | always

    def computed(self, role: str, kind: str) -> tuple[str, Callable[[Row], Any]] | None:
        """An expression over columns of one kind, as users write it and as a function of both rows."""
        sides = {"matched": ("source", "target"), "not_matched": ("source",), "by_source": ("target",)}[role]
        kinds = {"source": self.feed.kinds, "target": {"id": "long", **self.lake.kinds}}
        names = [f"{side}.{name}" for side in sides for name, one in kinds[side].items() if one == kind]
        if not names:
            return None
        one, other = self.random.choice(names), self.random.choice(names)
        if kind in ("int", "long") and self.random.random() < 0.5:
            return f"coalesce({one}, {other}) % 7", lambda row: remainder(first_known(row.get(one), row.get(other)), 7)
        return f"coalesce({one}, {other})", lambda row: first_known(row.get(one), row.get(other))


def first_known(one: Any, other: Any) -> Any:
    """SQL's coalesce."""
    return other if one is None else one


def remainder(number: int | None, divisor: int) -> int | None:
    """SQL's %: with the sign of the dividend."""
    return None if number is None else int(abs(number) % divisor) * (-1 if number < 0 else 1)


def literal_text(value: object) -> tuple[str, object]:
    """A value as text of the grammar, and what of it the text can say."""
    match value:
        case bool():
            return str(value).lower(), value
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value), value
        case float() if abs(value) < float("inf"):
            return repr(value), value
        case str():
            return "'" + value.replace("'", "''") + "'", value
        case dt.datetime():
            return f"timestamp '{value.isoformat()}'", value
        case dt.date():
            return f"date '{value.isoformat()}'", value
        case _:
            return "null", None


def random_merge(lake: RandomLake, feed: Feed, random: Random) -> tuple[MergeTask, Merge]:
    """A merge of ``feed`` as a task and as its meaning."""
    clauses = Clauses(lake, feed, random)
    lists = {
        "matched": clauses.some("matched", most=3),
        "not_matched": clauses.some("not_matched", most=2),
        "by_source": clauses.some("by_source", most=2) if random.random() < 0.5 else ([], []),
    }
    if not any(written for written, _ in lists.values()):
        return random_merge(lake, feed, random)
    where = clauses.condition("by_source") if random.random() < 0.3 else None
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("feed",)),
        keys=tuple(MergeKey(target=name, source=key) for name, key in feed.keys),
        when_matched=tuple(lists["matched"][0]),
        when_not_matched=tuple(lists["not_matched"][0]),
        when_not_matched_by_source=tuple(lists["by_source"][0]),
        sequence_by=feed.sequence,
        target_sequence=feed.stored,
        target_where=where,
    )
    order = key_type_of(feed.kinds["seq"])
    meaning = Merge(
        target_key=key_function(feed, lake, "target"),
        source_key=key_function(feed, lake, "source"),
        fit=lambda column, value: fit(lake, column, value),
        names=lake.schema.names,
        order=lambda value: (value is not None, 0 if value is None else normalize(value, order)),
        sequence=feed.sequence,
        stored=feed.stored,
        where=clauses.meaning(where),
        matched=lists["matched"][1],
        not_matched=lists["not_matched"][1],
        by_source=lists["by_source"][1],
    )
    return task, meaning


def fit(lake: RandomLake, column: str, value: Any) -> Any:
    """The value as the table's column holds it. Raises Refused when it cannot."""
    kind = lake.schema.field(column).type
    if value is None or isinstance(value, float):
        return value
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowInvalid, OverflowError):
        raise Refused(f"{value!r} does not fit {column}") from None


def feed_columns(feed: Feed) -> list[MergeColumn]:
    """The source's columns as the rules of merges take them."""
    return [MergeColumn(name=name, type=str(iceberg_type(POOL[kind].type))) for name, kind in feed.kinds.items()]
