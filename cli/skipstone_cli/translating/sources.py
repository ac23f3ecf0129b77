"""The source of a statement: which columns of which files it stands for, and which rows of a key count.

A table stands for files that hold its rows; a subquery may choose and rename columns, and keep the newest row of each
key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from skipstone_cli.translating.names import SOURCE, FileColumns, Scope, Side, is_column
from skipstone_cli.translating.refusals import WRITE_ROWS, Untranslatable, only, quoted

#: Parts of the name of a table in a namespace, and in a catalog: more may be what Iceberg selects of the table.
_TABLE_PARTS, _CATALOG_PARTS = 2, 3
#: What the name of a branch follows where Iceberg selects one.
_BRANCH = "branch_"


@dataclass(frozen=True)
class Newest:
    """Of each group of rows with equal ``keys`` the one with the greatest ``order``; both are paths in the files."""

    keys: frozenset[tuple[str, ...]]
    order: tuple[str, ...]


@dataclass(frozen=True)
class Relation:
    """A table or subquery. ``table``: the one that the files hold; ``ranks``: columns that number rows of a key.

    ``version``: the version of the table that is read, as a number; empty: the newest.
    """

    table: str
    side: Side
    newest: Newest | None = None
    ranks: dict[str, Newest] | None = None
    version: str = ""


def read_source(node: exp.Expr) -> Relation:
    """Return the relation behind USING. Raises Untranslatable."""
    if isinstance(node, exp.Table):
        return _read_table(node)
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Select):
        raise Untranslatable(f"{quoted(node)} is neither a table nor a SELECT of one table: {WRITE_ROWS}")
    only(node, "this", "alias", instead=WRITE_ROWS)
    inner = _read_select(node.this)
    return replace(inner, side=replace(inner.side, qualifiers=_aliases(node)))


def table_side(node: exp.Expr, name: str) -> Side:
    """The side of a table that is named with or without an alias. Raises Untranslatable."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise Untranslatable(f"{quoted(node)} is not the name of a table: {WRITE_ROWS}")
    only(node, "this", "db", "catalog", "alias", instead=WRITE_ROWS if name == SOURCE else "leave it out")
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


def _read_table(node: exp.Table) -> Relation:
    version = node.args.get("version")
    if version is None:
        return Relation(str(node.name), table_side(node, SOURCE))
    number = version.expression
    if version.name != "VERSION" or not isinstance(number, exp.Literal) or not str(number.name).isdecimal():
        raise Untranslatable(f"{quoted(node)} is not read as of a number of a version: write VERSION AS OF 12")
    plain = node.copy()
    plain.set("version", None)
    return Relation(str(node.name), table_side(plain, SOURCE), version=str(int(number.name)))


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
    scope = Scope([inner.side], [inner.side])
    chosen = _choose(node, inner, scope)
    where, qualify = node.args.get("where"), node.args.get("qualify")
    if where is not None:
        chosen = replace(chosen, newest=_kept(where.this, inner, inner.ranks or {}, scope))
    if qualify is not None:
        if where is not None:
            raise Untranslatable(f"{quoted(node)} has WHERE and QUALIFY: {WRITE_ROWS}")
        chosen = replace(chosen, newest=_kept(qualify.this, inner, chosen.ranks or {}, scope))
    return chosen


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
    return Relation(inner.table, replace(inner.side, columns=columns), inner.newest, ranks)


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


def _kept(condition: exp.Expr, inner: Relation, ranks: dict[str, Newest], scope: Scope) -> Newest:
    """Return the order of a condition that keeps the first row of each key. Raises Untranslatable for all others."""
    bare = condition.unnest()
    left = bare.this.unnest() if isinstance(bare, exp.EQ) else None
    is_first = isinstance(bare, exp.EQ) and str(bare.expression) == "1"
    newest = None
    if isinstance(left, exp.Window):
        newest = _newest(left, inner, scope)
    elif isinstance(left, exp.Column):
        newest = ranks.get(str(left.name).lower())
    if not is_first or newest is None or inner.newest is not None:
        raise Untranslatable(
            f"{quoted(condition)} selects rows, and a MergeJob reads whole files: {WRITE_ROWS}, or write the condition "
            "into each WHEN clause if rows that it leaves out are to change nothing"
        )
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
    return Newest(keys, scope.find(ordered[0].this).path)
