"""Tables with their health and maintenance, Warehouses, and schedules.

Called by the page.
"""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_report.markup import (
    NOT_KNOWN,
    NOTHING,
    Content,
    Grid,
    Markup,
    count,
    join,
    number,
    table,
    tag,
    volume,
    when,
)
from skipstone_report.reading import Entity
from skipstone_report.scope import Scope, TableKey

MAX_TABLES = 200
MAX_OTHERS = 50
#: Counts of ``status.health`` and their heads.
HEALTH = {
    "smallFiles": "Small files",
    "dueFiles": "Due files",
    "deleteFiles": "Delete files",
    "deletedRows": "Deleted rows",
    "snapshots": "Snapshots",
    "expirableSnapshots": "May expire",
    "manifests": "Manifests",
    "dueManifests": "Due manifests",
    "manifestsWithoutBounds": "Manifests without bounds",
}


def show_tables(scope: Scope) -> Markup:
    """Size and health of tables; those that are not ready or not healthy first, then by name."""
    every = sorted(scope.by_kind["Table"], key=_rank)
    if not every:
        return tag("p", "There are no tables.", class_="note")
    shown = every[:MAX_TABLES]
    sizes = Grid(
        caption="Tables",
        head=("Table", "Ready", "Rows", "Files", "Size", "Segments", "Updated", "Indexes in sync", "Looked at"),
        rows=[_size(one, scope) for one in shown],
    )
    judged = [one for one in shown if one.look("status.health") is not None or one.condition("Healthy") is not None]
    health = Grid(
        caption="Health of tables that are maintained",
        head=("Table", "Healthy", *HEALTH.values(), "Metadata"),
        rows=[_health(one) for one in judged],
    )
    steps = Grid(
        caption="Steps of maintenance, when each was last tried",
        head=("Table", "Step", "When", "How", "What it counted"),
        rows=[row for one in judged for row in _steps(one, scope)],
    )
    grids = [sizes, *(grid for grid in (health, steps) if grid.rows)]
    more = len(every) - len(shown)
    rest = tag("p", count(more), " more tables are not shown.", class_="note") if more else NOTHING
    return join((*map(table, grids), rest))


def _rank(one: Entity) -> tuple[bool, str]:
    states = (one.condition("Ready"), one.condition("Healthy"))
    return not any(state is not None and state.status == "False" for state in states), one.key


def _where(one: Entity) -> str:
    return str(TableKey(namespace=one.namespace, name=one.name))


def judged(one: Entity, type_: str) -> Markup:
    """Status and reason of a condition, with a sign."""
    found = one.condition(type_)
    if found is None:
        return tag("span", NOT_KNOWN, class_="none", title="not known")
    sign = {"True": "✓", "False": "✗"}.get(found.status, "?")
    style = {"True": "yes", "False": "no"}.get(found.status, "none")
    return tag("span", tag("span", f"{sign} ", aria_hidden="true"), f"{found.status}, {found.reason}", class_=style)


def _size(one: Entity, scope: Scope) -> Sequence[Content]:
    return (
        _where(one),
        judged(one, "Ready"),
        number(one.figure("status.rows")),
        number(one.figure("status.files")),
        volume(one.figure("status.bytes")),
        number(one.figure("status.segments.total")),
        number(one.figure("status.segments.updated")),
        join((number(one.figure("status.indexes.inSync")), " / ", number(one.figure("status.indexes.total")))),
        when(one.moment("status.observedTime"), scope.now),
    )


def _health(one: Entity) -> Sequence[Content]:
    counts = (number(one.figure(f"status.health.{name}")) for name in HEALTH)
    return (_where(one), judged(one, "Healthy"), *counts, volume(one.figure("status.health.metadataBytes")))


def _steps(one: Entity, scope: Scope) -> list[Sequence[Content]]:
    found = list[Sequence[Content]]()
    for at in range(min(one.size("status.lastMaintenance"), 16)):
        path = f"status.lastMaintenance.{at}"
        done = "done" if one.look(f"{path}.done") is True else "not done"
        counts = [
            join((f"{name} ", number(one.figure(f"{path}.counts.{name}")))) for name in one.names(f"{path}.counts")
        ]
        told: list[Content] = [part for each in counts[:32] for part in (each, ", ")][:-1]
        how = ", ".join(filter(None, (done, one.text(f"{path}.reason"))))
        moment = when(one.moment(f"{path}.time"), scope.now)
        found.append((_where(one), one.text(f"{path}.step"), moment, how, join(told)))
    return found


def show_warehouses(scope: Scope) -> Markup:
    """What Warehouses are, and how many tables each has."""
    every = scope.by_kind["Warehouse"]
    rows = [
        (
            _where(one),
            judged(one, "Ready"),
            one.text("status.catalog"),
            one.text("status.storage"),
            number(one.figure("status.tables")),
            when(one.moment("status.checkTime"), scope.now),
        )
        for one in every[:MAX_OTHERS]
    ]
    head = ("Warehouse", "Ready", "Catalog", "Storage", "Tables", "Checked")
    found = _few(Grid(caption="Warehouses", head=head, rows=rows), len(every))
    servers = [_server(one) for one in every[:MAX_OTHERS] if one.look("status.planning") is not None]
    if not servers:
        return found
    served = Grid(caption="Planning servers", head=("Warehouse", "Ready", "Ready replicas"), rows=servers)
    return join((found, table(served)))


def _server(one: Entity) -> Sequence[Content]:
    ready, wanted = (number(one.figure(f"status.planning.{name}")) for name in ("readyReplicas", "replicas"))
    return (_where(one), judged(one, "PlanningReady"), join((ready, " / ", wanted)))


def show_schedules(scope: Scope) -> Markup:
    """When schedules created MergeJobs, and when they do so next."""
    every = scope.by_kind["MergeSchedule"]
    rows = [
        (
            _where(one),
            judged(one, "Ready"),
            one.table,
            one.text("spec.schedule"),
            number(one.figure("status.active")),
            when(one.moment("status.lastScheduleTime"), scope.now),
            when(one.moment("status.lastSuccessfulTime"), scope.now),
            _next(one),
        )
        for one in every[:MAX_OTHERS]
    ]
    head = ("Schedule", "Ready", "Table", "Times", "Active", "Last due", "Last success", "Next due")
    return _few(Grid(caption="Merge schedules", head=head, rows=rows), len(every))


def _next(one: Entity) -> Content:
    moment = one.moment("status.nextScheduleTime")
    if moment is None:
        return NOT_KNOWN
    return tag("time", moment.strftime("%Y-%m-%d %H:%M:%S UTC"), datetime=moment.isoformat())


def _few(grid: Grid, every: int) -> Markup:
    if not every:
        return tag("p", f"There are no {grid.caption.lower()}.", class_="note")
    more = every - len(grid.rows)
    rest = tag("p", count(more), " more are not shown.", class_="note") if more else NOTHING
    return join((table(grid), rest))
