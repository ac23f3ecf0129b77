"""A MERGE statement as the manifest of a MergeJob, or the sentences that name what it cannot say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from skipstone_core.errors import BadSpec
from skipstone_core.language.parser import parse_assigned, parse_predicate
from skipstone_core.language.paths import join_path
from sqlglot import exp

from skipstone_cli.translating.branching import MAX_CLAUSES
from skipstone_cli.translating.clauses import (
    BY_SOURCE,
    MATCHED,
    NOT_MATCHED,
    Clause,
    Clauses,
    When,
    asks_for_keys,
    list_whens,
)
from skipstone_cli.translating.conditions import Condition, Conditions, all_of
from skipstone_cli.translating.dialects import EVOLVES, Dialect, parse_merge
from skipstone_cli.translating.literals import Zone
from skipstone_cli.translating.matching import Match, read_match
from skipstone_cli.translating.names import ROWS, SOURCE, TARGET, Name, Scope, Side, is_column
from skipstone_cli.translating.refusals import WRITE_ROWS, Parts, Untranslatable, only, quoted
from skipstone_cli.translating.sources import (
    Kept,
    Relation,
    delta_version,
    inline_queries,
    read_source,
    selected_rows,
    table_side,
    without_branch,
)
from skipstone_cli.translating.values import Values

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
#: Bounds of a MergeJob, as its CustomResourceDefinition has them.
MAX_KEYS = 32
MAX_COLUMNS = 1000
MAX_NAME = 255
MAX_PREDICATE = 4096
MAX_ASSIGNED = 1024


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The choices of a user that a statement does not contain.

    ``table``: name of the Table; that of the statement if empty. ``paths``, ``format``, ``location`` and ``columns``
    (name to type): the files with the rows of its source; ``are_folders``: also in the names of folders. ``delta``: the
    folder of a Delta table in place of files. Without both, the source is the Table ``source_table`` (that of the
    statement if empty). ``zone``: of the session. ``keys_are_set``: the source has no null in a key.
    """

    dialect: Dialect
    table: str = ""
    source_table: str = ""
    name: str = ""
    paths: Sequence[str] = ()
    format: str = "Parquet"
    location: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    are_folders: bool = False
    delta: str = ""
    zone: str = ""
    keys_are_set: bool = False

    @property
    def reads_table(self) -> bool:
        """Return whether the source is a Table."""
        return not self.paths and not self.delta


@dataclass(frozen=True)
class Translation:
    """``manifest`` if all parts went over, else sentences in ``refused``. ``notes``: what the manifest takes for
    granted.
    """

    manifest: Mapping[str, Any] | None
    refused: Sequence[str] = ()
    notes: Sequence[str] = ()


def translate(text: str, chosen: Chosen) -> Translation:
    """The MergeJob that does what the MERGE statement ``text`` does."""
    parts = Parts()
    statement = parts.attempt("The statement", lambda: _parse(text, chosen))
    if statement is None:
        return Translation(None, parts.refused)
    branch = parts.attempt("MERGE INTO", lambda: _take_branch(statement))
    if branch is None:
        return Translation(None, parts.refused)
    table = parts.attempt("MERGE INTO", lambda: _read_table(statement, chosen))
    relation = parts.attempt("USING", lambda: _read_source(statement, chosen))
    if table is None or relation is None:
        return Translation(None, parts.refused)
    manifest = _Job(chosen, statement, table, relation, parts, branch).build()
    if parts.refused:
        return Translation(None, parts.refused)
    return Translation(manifest, (), _notes(statement, relation, chosen))


@dataclass(frozen=True)
class _Job:
    """Puts the parts of a manifest together."""

    chosen: Chosen
    statement: exp.Merge
    table: Side
    relation: Relation
    parts: Parts
    branch: str

    def build(self) -> Mapping[str, Any] | None:
        """The manifest; None where a part was refused."""
        match = self.parts.attempt("ON", self._match)
        whens = self.parts.attempt("WHEN", lambda: list_whens(self.statement.args["whens"].expressions))
        kept = self.parts.attempt("USING", self._kept)
        source = self.parts.attempt("USING", self._source)
        if match is None or whens is None or kept is None or source is None:
            return None
        clauses = self._clauses(whens, kept)
        with self.parts.part("USING"):
            self._check_newest(match, whens)
        with self.parts.part("WHEN NOT MATCHED"):
            self._check_inserted_keys(match, clauses)
        with self.parts.part("The statement"):
            self._check_evolution(match, clauses)
        where = self.parts.attempt("ON", lambda: self._where(match, kept))
        if self.parts.refused:
            return None
        spec = self._spec(source, match, clauses, where)
        with self.parts.part("The statement"):
            _check(spec)
        name = self.chosen.name or f"{_table_name(self.statement, self.chosen)}-merge"
        return {
            "apiVersion": "skipstone.dev/v1alpha1",
            "kind": "MergeJob",
            "metadata": {"name": name},
            "spec": spec,
        }

    @property
    def _zone(self) -> Zone:
        return Zone(self.chosen.zone)

    def _both(self) -> Scope:
        sides = [self.relation.side, self.table]
        return Scope(sides, sides)

    def _match(self) -> Match:
        on = self.statement.args.get("on")
        if on is None:
            raise Untranslatable("there is no condition: match the table and the source by keys")
        return read_match(on, self._both(), keys_are_set=self.chosen.keys_are_set)

    def _conditions(self, *sides: Side) -> Conditions:
        return Conditions(Values(Scope(sides, sides), self.chosen.dialect, self._zone))

    def _kept(self) -> list[Condition]:
        """The conditions of the subquery that the clauses have to repeat. Raises Untranslatable."""
        repeated = [kept for kept in self.relation.kept_last if not self._is_of_table(kept)]
        conditions = [Condition(kept.node, self._conditions(kept.side)) for kept in repeated]
        return [condition for condition in conditions if condition.text]

    def _is_of_table(self, kept: Kept) -> bool:
        """Return whether the table of the source can be read by a condition, which names columns of it only."""
        scope = Scope([kept.side], [kept.side])
        names = [scope.find(column) for column in kept.node.find_all(exp.Column, exp.Dot) if is_column(column)]
        is_last = self.relation.newest is not None and kept in self.relation.kept_last
        return self.chosen.reads_table and not is_last and all(len(name.path) == 1 for name in names)

    def _source(self) -> dict[str, Any]:
        """The files or the table of the source, and which rows of the table are read. Raises Untranslatable."""
        early = [kept for kept in self.relation.kept_before if not self._is_of_table(kept)]
        if early:
            raise Untranslatable(
                f"{quoted(early[0].node)} selects rows before the newest of each key is chosen: {WRITE_ROWS}"
            )
        listed = [kept for kept in self.relation.kept if self._is_of_table(kept)]
        sides = [replace(kept.side, name=ROWS) for kept in listed]
        conditions = [Condition(kept.node, self._conditions(side)) for kept, side in zip(listed, sides, strict=True)]
        if not self.chosen.reads_table:
            return _files(self.chosen, self.relation)
        where = {"where": all_of(conditions)} if conditions else {}
        return {"table": {**_source_table(self.relation, self.chosen), **where}}

    def _clauses(self, whens: Sequence[When], kept: Sequence[Condition]) -> Mapping[str, list[Clause]]:
        translator = Clauses(self.table, self.relation.side, self.chosen.dialect, self._zone, self.parts, kept)
        clauses: dict[str, list[Clause]] = {MATCHED: [], NOT_MATCHED: [], BY_SOURCE: []}
        for when in whens:
            with self.parts.part(when.place):
                clauses[when.role] += translator.translate(when)
        return clauses

    def _where(self, match: Match, kept: Sequence[Condition]) -> str:
        both = self._conditions(self.relation.side, self.table)
        listed = [*kept, *(Condition(node, both) for node in match.where)]
        return all_of(listed) if listed else ""

    def _check_newest(self, match: Match, whens: Sequence[When]) -> None:
        newest = self.relation.newest
        if newest is None:
            return
        if newest.keys != {source.path for _, source in match.keys}:
            raise Untranslatable(
                "PARTITION BY has other columns than the keys of ON: number the rows of each key, so that one is left"
            )
        inserts = [when for when in whens if when.role == NOT_MATCHED]
        scope = Scope([self.relation.side], [self.relation.side, self.table])
        keys = [source.field for _, source in match.keys]
        kept = [Condition(kept.node, self._conditions(kept.side)) for kept in self.relation.kept]
        of_source = Conditions(Values(scope, self.chosen.dialect, self._zone))
        asked = [[*kept, *(Condition(part, of_source) for part in when.conditions)] for when in inserts]
        if not self.chosen.keys_are_set and not all(asks_for_keys(conditions, keys) for conditions in asked):
            raise Untranslatable(
                "of rows with a null key the statement inserts one and a MergeJob each: add AND "
                f"s.{keys[0]} IS NOT NULL to WHEN NOT MATCHED, or say that there are none with --keys-not-null"
            )

    def _check_inserted_keys(self, match: Match, clauses: Mapping[str, list[Clause]]) -> None:
        pair = next((pair for pair in match.keys if pair[0].field != pair[1].field), None)
        if pair is not None and any("values" not in clause for clause in clauses[NOT_MATCHED]):
            target, source = pair
            raise Untranslatable(
                f"INSERT * takes {target.field!r} from the column of that name, and a MergeJob from the key "
                f"{source.field!r}: name the columns and their values"
            )

    def _check_evolution(self, match: Match, clauses: Mapping[str, list[Clause]]) -> None:
        """Refuse ``*`` where the statement adds columns that a MergeJob does not, as they have another purpose."""
        listed = [clause for role in (MATCHED, NOT_MATCHED) for clause in clauses[role]]
        has_star = any(clause["action"] != "Delete" and not {"set", "values"} & set(clause) for clause in listed)
        if not self.statement.meta.get(EVOLVES):
            return
        if (struct := next(self.statement.find_all(exp.Struct), None)) is not None:
            raise Untranslatable(
                f"{quoted(struct)} can add fields by WITH SCHEMA EVOLUTION, and a MergeJob does not: name the fields, "
                "as in UPDATE SET t.address.city = s.city"
            )
        if not has_star:
            return
        keys = {source.field for target, source in match.keys if target.field == source.field}
        named = {source.field for _, source in match.keys}
        named |= {join_path(self.relation.newest.order)} if self.relation.newest else set()
        conditions = [when.args.get("condition") for when in self.statement.args["whens"].expressions]
        for condition in filter(None, [*conditions, *match.where]):
            named |= {name.field for name in self._named(condition) if name.side == SOURCE}
        if steering := sorted(named - keys):
            raise Untranslatable(
                f"WITH SCHEMA EVOLUTION and * add the column {steering[0]!r}, which a condition names or which orders "
                "rows, and a MergeJob does not: name the columns in SET and VALUES"
            )

    def _named(self, condition: exp.Expr) -> Sequence[Name]:
        return [self._both().find(column) for column in condition.find_all(exp.Column, exp.Dot) if is_column(column)]

    def _spec(
        self, source: Mapping[str, Any], match: Match, clauses: Mapping[str, list[Clause]], where: str | None
    ) -> dict[str, Any]:
        newest = self.relation.newest
        spec: dict[str, Any] = {
            "tableRef": {"name": _table_name(self.statement, self.chosen)},
            **({"branch": {"name": self.branch}} if self.branch else {}),
            "source": source,
            "keys": [{"target": target.field, "source": source.field} for target, source in match.keys],
        }
        if newest is not None:
            spec["sequenceBy"] = join_path(newest.order)
        if where:
            spec["targetWhere"] = where
        spec |= {role: listed for role, listed in clauses.items() if listed}
        if self.statement.meta.get(EVOLVES):
            spec["schemaEvolution"] = "AddColumns"
        if self.chosen.zone:
            spec["timeZone"] = self.chosen.zone
        return spec


def _table_name(statement: exp.Merge, chosen: Chosen) -> str:
    name = chosen.table or str(statement.this.name).lower()
    if not _OBJECT_NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise Untranslatable(f"{name!r} cannot be the name of a Table: name the Table with --table")
    return name


def _source_table(relation: Relation, chosen: Chosen) -> dict[str, str]:
    """The table of the source, and the branch, tag or snapshot of it. Raises Untranslatable."""
    selected = selected_rows(relation.node)
    name = chosen.source_table or selected["name"]
    if not _OBJECT_NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise Untranslatable(
            f"{name!r} cannot be the name of a Table: name the Table with --source-table, or what has its rows with "
            "--path or --delta"
        )
    return {**selected, "name": name}


def _parse(text: str, chosen: Chosen) -> exp.Merge:
    statement = parse_merge(text, chosen.dialect)
    inline_queries(statement)
    only(statement, "this", "using", "on", "whens")
    return statement


def _take_branch(statement: exp.Merge) -> str:
    """Take the branch out of the name of the table that is merged into, and return it; "": main."""
    table, branch = without_branch(statement.this)
    statement.set("this", table)
    return "" if branch == "main" else branch


def _read_table(statement: exp.Merge, chosen: Chosen) -> Side:
    _table_name(statement, chosen)
    return table_side(statement.this, TARGET)


def _read_source(statement: exp.Merge, chosen: Chosen) -> Relation:
    relation = read_source(statement.args["using"])
    version = relation.node.args.get("version")
    if chosen.reads_table:
        _source_table(relation, chosen)
    elif chosen.delta:
        delta_version(relation.node)
    elif version is not None:
        raise Untranslatable(
            f"it reads {quoted(version)} of {relation.table!r}, and files have no versions: {WRITE_ROWS}, or name the "
            "folder of a Delta table with --delta"
        )
    return relation


def _files(chosen: Chosen, relation: Relation) -> dict[str, Any]:
    columns = [{"name": name, "type": kind} for name, kind in chosen.columns.items()]
    source: dict[str, Any] = {} if chosen.delta else {"format": chosen.format}
    if chosen.location:
        source["location"] = chosen.location
    if chosen.delta:
        version = delta_version(relation.node)
        return source | {"delta": {"path": chosen.delta, **({"version": version} if version else {})}}
    source["paths"] = list(chosen.paths)
    if chosen.are_folders:
        source["hivePartitions"] = {"columns": columns} if columns else {}
    elif columns:
        source["columns"] = columns
    return source


def _check(spec: Mapping[str, Any]) -> None:
    """Raise Untranslatable for what is longer than a MergeJob may be, or nested deeper."""
    roles = [spec.get(role, ()) for role in (MATCHED, NOT_MATCHED, BY_SOURCE)]
    if len(spec["keys"]) > MAX_KEYS or max(map(len, roles)) > MAX_CLAUSES:
        raise Untranslatable(f"it has more than {MAX_KEYS} keys or {MAX_CLAUSES} clauses of a kind: merge in two steps")
    clauses = [clause for role in roles for clause in role]
    given = [clause.get("set", clause.get("values", {})) for clause in clauses]
    try:
        selected = spec["source"].get("table", {}).get("where")
        for predicate in [selected, spec.get("targetWhere"), *(clause.get("when") for clause in clauses)]:
            if predicate is not None:
                parse_predicate(predicate)
        for value in (value for mapping in given for value in mapping.values()):
            parse_assigned(value)
    except BadSpec as error:
        raise Untranslatable(f"{error}: work it out when you write the source") from None
    predicates = [clause.get("when", "") for clause in clauses] + [spec.get("targetWhere", "")]
    names = [name for mapping in given for name in mapping] + [name for key in spec["keys"] for name in key.values()]
    is_long = max(map(len, predicates)) > MAX_PREDICATE or any(len(name) > MAX_NAME for name in names)
    if is_long or any(
        len(mapping) > MAX_COLUMNS or max(map(len, mapping.values()), default=0) > MAX_ASSIGNED for mapping in given
    ):
        raise Untranslatable(
            f"a condition has more than {MAX_PREDICATE} characters, a value more than {MAX_ASSIGNED}, a name more than "
            f"{MAX_NAME}, or a clause more than {MAX_COLUMNS} columns: shorten it"
        )


def _notes(statement: exp.Merge, relation: Relation, chosen: Chosen) -> Sequence[str]:
    what = "the Delta table" if chosen.delta else "the source" if chosen.reads_table else "the files"
    notes = [f"{what} must hold the rows of {relation.table!r} and nothing else"]
    if chosen.reads_table:
        name = _source_table(relation, chosen)["name"]
        notes = [f"the source is the Table {name!r}; if its rows are in files, name them with --path"]
    if chosen.are_folders:
        notes.append(
            "a value in the name of a folder has the type of the table column that it feeds, or that of --column, and "
            "is text otherwise: some engines infer another type"
        )
    if relation.ranks and relation.side.columns.rest:
        lacks = f"which {what} {'lack' if chosen.paths else 'lacks'}"
        notes.append(f"the table must not have the column {', '.join(sorted(relation.ranks))}, {lacks}")
    if next(statement.find_all(exp.Struct), None) is not None:
        notes.append("the table must not have other fields than those that the statement names in its structs")
    return notes
