"""The source of a statement: which columns of which files or table it stands for, and which of its rows count.

A subquery may choose and rename columns, keep rows on which a condition is true, and the newest row of each key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from skipstone_cli.translating.conditions import flattened
from skipstone_cli.translating.names import SOURCE, FileColumns, Scope, Side, is_column
from skipstone_cli.translating.refusals import WRITE_ROWS, Untranslatable, only, quoted

#: Parts of the name of a table in a namespace, and in a catalog: more may be what Iceberg selects of the table.
_TABLE_PARTS, _CATALOG_PARTS = 2, 3
#: What the names of a branch, of a tag and of a snapshot follow where Iceberg selects one of a table.
_BRANCH, _TAG, _SNAPSHOT = "branch_", "tag_", "snapshot_id_"
_SNAPSHOT_ID = re.compile("0|[1-9][0-9]{0,18}")


@dataclass(frozen=True)
class Newest:
    """Of each group of rows with equal ``keys`` the one with the greatest ``order``; both are paths in the files.

    ``conditions``: how many conditions the rows have satisfied before they are numbered.
    """

    keys: frozenset[tuple[str, ...]]
    order: tuple[str, ...]
    conditions: int = 0


@dataclass(frozen=True)
class Kept:
    """A condition of a subquery, without which a row is not there. ``side``: what it can name."""

    node: exp.Expr
    side: Side


@dataclass(frozen=True)
class Relation:
    """A table or subquery. ``table``: the one whose rows it has; ``node``: the same as the statement names it.

    ``kept``: which of its rows are there, in the order in which the conditions apply; ``ranks``: columns that number
    rows of a key.
    """

    table: str
    node: exp.Expr
    side: Side
    newest: Newest | None = None
    ranks: dict[str, Newest] | None = None
    kept: Sequence[Kept] = ()

    @property
    def kept_before(self) -> Sequence[Kept]:
        """The conditions on the rows of which the newest are chosen."""
        return self.kept[: self.newest.conditions] if self.newest else ()

    @property
    def kept_last(self) -> Sequence[Kept]:
        """The conditions on the rows that the statement merges."""
        return self.kept[self.newest.conditions :] if self.newest else self.kept


def read_source(node: exp.Expr) -> Relation:
    """Return the relation behind USING. Raises Untranslatable."""
    if isinstance(node, exp.Table):
        return _read_table(node)
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Select):
        raise Untranslatable(f"{quoted(node)} is neither a table nor a SELECT of one table: {WRITE_ROWS}")
    only(node, "this", "alias", instead=WRITE_ROWS)
    inner = _read_select(node.this)
    return replace(inner, side=replace(inner.side, qualifiers=_aliases(node)))


def inline_queries(statement: exp.Merge) -> None:
    """Put the queries of WITH in the places of their names behind USING. Raises Untranslatable."""
    with_ = statement.args.get("with_")
    if with_ is None:
        return
    only(with_, "expressions", instead=WRITE_ROWS)
    queries: dict[str, exp.Expr] = {}
    for query in with_.expressions:
        only(query, "this", "alias", instead=WRITE_ROWS)
        only(query.args["alias"], "this", instead="name the columns in its SELECT")
        queries[str(query.alias).lower()] = _with_queries(query.this, queries)
    statement.set("using", _with_queries(statement.args["using"], queries))
    statement.set("with_", None)


def _with_queries(node: exp.Expr, queries: Mapping[str, exp.Expr]) -> exp.Expr:
    def replaced(part: exp.Expr) -> exp.Expr:
        is_query = isinstance(part, exp.Table) and len(part.parts) == 1 and part.name.lower() in queries
        if not is_query:
            return part
        only(part, "this", "alias", instead=WRITE_ROWS)
        alias = part.args.get("alias") or exp.TableAlias(this=part.this.copy())
        return exp.Subquery(this=queries[part.name.lower()].copy(), alias=alias.copy())

    return node.transform(replaced)


def table_side(node: exp.Expr, name: str) -> Side:
    """The side of a table that is named with or without an alias. Raises Untranslatable."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier | exp.Dot):
        raise Untranslatable(f"{quoted(node)} is not the name of a table: {WRITE_ROWS}")
    only(node, "this", "db", "catalog", "alias", instead="leave it out")
    parts = [part.name.lower() for part in node.parts]
    qualifiers = _aliases(node) or tuple(tuple(parts[at:]) for at in reversed(range(len(parts))))
    return Side(name, qualifiers)


def without_branch(node: exp.Expr) -> tuple[exp.Expr, str]:
    """The table that is merged into, and the branch that Iceberg selects of it in the last part of its name, or "".

    Raises Untranslatable for a name that may be that of a table or of a branch.
    """
    parts = list(node.parts) if isinstance(node, exp.Table) else []
    last = str(parts[-1].name) if parts else ""
    if len(parts) <= _TABLE_PARTS or not last.startswith(_BRANCH):
        return node, ""
    if len(parts) == _CATALOG_PARTS:
        raise Untranslatable(
            f"{quoted(node)} is a table {last!r} or a branch of {parts[-2].name!r}: name the table without its "
            "catalog, or the branch with it"
        )
    table = node.copy()
    dot = table.this
    table.set("this", dot.this)
    return table, last.removeprefix(_BRANCH)


def selected_rows(node: exp.Expr) -> dict[str, str]:
    """The branch, tag or snapshot that is selected of a table of the source, and the ``name`` of the table.

    As fields of ``source.table``. Raises Untranslatable.
    """
    parts = [str(part.name) for part in node.parts] if isinstance(node, exp.Table) else []
    version, last = node.args.get("version"), parts[-1] if parts else ""
    selected: dict[str, str] = {}
    for prefix, name in ((_BRANCH, "ref"), (_TAG, "ref"), (_SNAPSHOT, "snapshot")):
        if len(parts) > _TABLE_PARTS and last.startswith(prefix):
            selected[name] = last.removeprefix(prefix)
    if len(parts) > _CATALOG_PARTS and not selected:
        raise Untranslatable(f"{quoted(node)} is not a table in a namespace of a catalog: {WRITE_ROWS}")
    if selected and len(parts) == _CATALOG_PARTS:
        raise Untranslatable(
            f"{quoted(node)} is a table {last!r} or rows of {parts[-2]!r}: name the table without its catalog, or its "
            "branch, tag or snapshot with it"
        )
    if version is not None:
        selected |= _version(version)
    if not _SNAPSHOT_ID.fullmatch(selected.get("snapshot", "0")):
        raise Untranslatable(f"{quoted(node)} names no snapshot: write its id, a whole number")
    names = parts[:-1] if len(parts) > _CATALOG_PARTS else parts
    return {"name": names[-1].lower(), **selected}


def delta_version(node: exp.Expr) -> str:
    """The version of a Delta table that is read, as a number; empty: the newest. Raises Untranslatable."""
    version = node.args.get("version")
    if version is None:
        return ""
    number = version.args.get("expression")
    if (
        str(version.this).upper() != "VERSION"
        or not isinstance(number, exp.Literal)
        or not str(number.this).isdecimal()
    ):
        raise Untranslatable(f"{quoted(node)} is not read as of a number of a version: write VERSION AS OF 12")
    return str(int(str(number.this)))


def _version(node: exp.Expr) -> dict[str, str]:
    value = node.args.get("expression")
    if str(node.this).upper() != "VERSION" or node.args.get("kind") != "AS OF" or not isinstance(value, exp.Literal):
        raise Untranslatable(
            f"{quoted(node)} is not a version that a MergeJob reads: write VERSION AS OF with the id of a snapshot, "
            "or the name of a branch or tag"
        )
    text = str(value.this)
    return {"snapshot" if _SNAPSHOT_ID.fullmatch(text) else "ref": text}


def _read_table(node: exp.Table) -> Relation:
    bare = node.copy()
    bare.set("version", None)
    only(bare, "this", "db", "catalog", "alias", instead=WRITE_ROWS)
    return Relation(str(node.name), node, table_side(bare, SOURCE))


def _aliases(node: exp.Expr) -> tuple[tuple[str, ...], ...]:
    alias = node.args.get("alias")
    if alias is None:
        return ()
    only(alias, "this")
    return ((str(alias.name).lower(),),)


def _read_select(node: exp.Select) -> Relation:
    only(node, "expressions", "from_", "where", "qualify", instead=WRITE_ROWS)
    from_ = node.args.get("from_")
    if from_ is None:
        raise Untranslatable(f"{quoted(node)} selects from no table: {WRITE_ROWS}")
    inner = read_source(from_.this)
    where, qualify = node.args.get("where"), node.args.get("qualify")
    if where is not None:
        inner = _keep(where.this, inner)
    chosen = _choose(node, inner, Scope([inner.side], [inner.side]))
    return chosen if qualify is None else replace(chosen, newest=_first(qualify.this, chosen, inner))


def _keep(condition: exp.Expr, inner: Relation) -> Relation:
    """``inner`` with the rows on which a condition of WHERE is true. Raises Untranslatable."""
    parts = list(flattened(condition, exp.And))
    numbered = next((part for part in parts if _tests_number(part, inner)), None)
    kept = [*inner.kept, *(Kept(part, inner.side) for part in parts if part is not numbered)]
    newest = inner.newest if numbered is None else _first(numbered, inner, inner)
    return replace(inner, newest=newest, kept=kept)


def _choose(node: exp.Select, inner: Relation, scope: Scope) -> Relation:
    """The columns that a SELECT lists."""
    columns, ranks = FileColumns(rest=False), dict[str, Newest]()
    for expression in node.expressions:
        column = expression.this if isinstance(expression, exp.Alias) else expression
        if isinstance(column, exp.Star) or (isinstance(column, exp.Column) and isinstance(column.this, exp.Star)):
            columns = _with_star(columns, column, inner, scope)
            ranks |= {name: newest for name, newest in (inner.ranks or {}).items() if name in columns.hidden}
        elif isinstance(column, exp.Window) and isinstance(expression, exp.Alias):
            ranks[expression.alias.lower()] = _newest(column, inner, scope)
        elif is_column(column):
            located = scope.find(column)
            name = expression.alias or located.path[-1]
            columns = replace(columns, named={**columns.named, name: located.path})
        else:
            raise Untranslatable(f"{quoted(expression)} is computed: {WRITE_ROWS}, or compute it in SET and VALUES")
    columns = replace(columns, hidden=columns.hidden | ranks.keys(), ranks=frozenset(ranks))
    return replace(inner, side=replace(inner.side, columns=columns), ranks=ranks)


def _with_star(columns: FileColumns, node: exp.Expr, inner: Relation, scope: Scope) -> FileColumns:
    """All columns of the relation behind FROM, but for those that the star excepts."""
    star = node if isinstance(node, exp.Star) else node.this
    only(star, "except_")
    if isinstance(node, exp.Column) and scope.sides[0].rest_of((*(part.name for part in node.parts[:-1]), "*")) is None:
        raise Untranslatable(f"{quoted(node)} names another table: {WRITE_ROWS}")
    left_out = {str(excepted.name).lower() for excepted in star.args.get("except_") or ()}
    unseen = left_out - (inner.ranks or {}).keys()
    if unseen and inner.side.columns.rest:
        raise Untranslatable(
            f"EXCEPT leaves out {', '.join(sorted(unseen))}, which the files may have: list the columns in SET and "
            "VALUES, and select *"
        )
    named = {name: path for name, path in inner.side.columns.named.items() if name.lower() not in left_out}
    return FileColumns({**named, **columns.named}, inner.side.columns.rest, inner.side.columns.hidden | left_out)


def _tests_number(part: exp.Expr, inner: Relation) -> bool:
    """Return whether a condition asks for the number of a row among those of its key."""
    left = part.this.unnest() if isinstance(part, exp.EQ) else None
    return isinstance(left, exp.Column) and str(left.name).lower() in (inner.ranks or {})


def _first(condition: exp.Expr, numbered: Relation, inner: Relation) -> Newest:
    """Return the order of a condition that keeps the first row of each key. Raises Untranslatable for all others."""
    bare = condition.unnest()
    left = bare.this.unnest() if isinstance(bare, exp.EQ) else None
    is_first = isinstance(bare, exp.EQ) and str(bare.expression) == "1"
    newest = None
    if isinstance(left, exp.Window):
        newest = _newest(left, inner, Scope([inner.side], [inner.side]))
    elif isinstance(left, exp.Column):
        newest = (numbered.ranks or {}).get(str(left.name).lower())
    if not is_first or newest is None or inner.newest is not None:
        raise Untranslatable(f"{quoted(condition)} does not keep the first row of each key: write = 1, or {WRITE_ROWS}")
    return newest


def _newest(window: exp.Window, inner: Relation, scope: Scope) -> Newest:
    """``row_number() over (partition by key order by sequence desc)``. Raises Untranslatable for all others."""
    only(window, "this", "partition_by", "order", "over")
    order = window.args.get("order")
    ordered = order.expressions if isinstance(order, exp.Order) else []
    if not isinstance(window.this, exp.RowNumber) or len(ordered) != 1 or inner.newest is not None:
        raise Untranslatable(
            f"{quoted(window)} does not number the rows of a key by one column: use ROW_NUMBER() OVER (PARTITION BY "
            f"keys ORDER BY sequence DESC), or {WRITE_ROWS}"
        )
    if not ordered[0].args.get("desc") or ordered[0].args.get("nulls_first"):
        raise Untranslatable(
            f"{quoted(window)} does not keep the greatest value, with null as the least: write ORDER BY … DESC NULLS "
            f"LAST, or {WRITE_ROWS}"
        )
    keys = frozenset(scope.find(key).path for key in window.args.get("partition_by") or ())
    return Newest(keys, scope.find(ordered[0].this).path, len(inner.kept))
