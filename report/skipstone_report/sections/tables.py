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
        rows=[_size(entity, scope) for entity in shown],
    )
    judged = [
        entity
        for entity in shown
        if entity.look("status.health") is not None or entity.condition("Healthy") is not None
    ]
    health = Grid(
        caption="Health of tables that are maintained",
        head=("Table", "Healthy", *HEALTH.values(), "Metadata"),
        rows=[_health(entity) for entity in judged],
    )
    steps = Grid(
        caption="Steps of maintenance, when each was last tried",
        head=("Table", "Step", "When", "How", "What it counted"),
        rows=[row for entity in judged for row in _steps(entity, scope)],
    )
    grids = [sizes, *(grid for grid in (health, steps) if grid.rows)]
    more = len(every) - len(shown)
    rest = tag("p", count(more), " more tables are not shown.", class_="note") if more else NOTHING
    return join((*map(table, grids), rest))


def _rank(entity: Entity) -> tuple[bool, str]:
    states = (entity.condition("Ready"), entity.condition("Healthy"))
    return not any(state is not None and state.status == "False" for state in states), entity.key


def _where(entity: Entity) -> str:
    return str(TableKey(namespace=entity.namespace, name=entity.name))


def judged(entity: Entity, type_: str) -> Markup:
    """Status and reason of a condition, with a sign."""
    condition = entity.condition(type_)
    if condition is None:
        return tag("span", NOT_KNOWN, class_="none", title="not known")
    sign = {"True": "✓", "False": "✗"}.get(condition.status, "?")
    style = {"True": "yes", "False": "no"}.get(condition.status, "none")
    return tag(
        "span", tag("span", f"{sign} ", aria_hidden="true"), f"{condition.status}, {condition.reason}", class_=style
    )


def _size(entity: Entity, scope: Scope) -> Sequence[Content]:
    return (
        _where(entity),
        judged(entity, "Ready"),
        number(entity.figure("status.rows")),
        number(entity.figure("status.files")),
        volume(entity.figure("status.bytes")),
        number(entity.figure("status.segments.total")),
        number(entity.figure("status.segments.updated")),
        join((number(entity.figure("status.indexes.inSync")), " / ", number(entity.figure("status.indexes.total")))),
        when(entity.moment("status.observedTime"), scope.now),
    )


def _health(entity: Entity) -> Sequence[Content]:
    counts = (number(entity.figure(f"status.health.{name}")) for name in HEALTH)
    return (_where(entity), judged(entity, "Healthy"), *counts, volume(entity.figure("status.health.metadataBytes")))


def _steps(entity: Entity, scope: Scope) -> list[Sequence[Content]]:
    rows = list[Sequence[Content]]()
    for at in range(min(entity.size("status.lastMaintenance"), 16)):
        path = f"status.lastMaintenance.{at}"
        done = "done" if entity.look(f"{path}.done") is True else "not done"
        counts = [
            join((f"{name} ", number(entity.figure(f"{path}.counts.{name}"))))
            for name in entity.names(f"{path}.counts")
        ]
        counted: list[Content] = [part for each in counts[:32] for part in (each, ", ")][:-1]
        how = ", ".join(filter(None, (done, entity.text(f"{path}.reason"))))
        moment = when(entity.moment(f"{path}.time"), scope.now)
        rows.append((_where(entity), entity.text(f"{path}.step"), moment, how, join(counted)))
    return rows


def show_warehouses(scope: Scope) -> Markup:
    """Show Warehouses with the number of their tables."""
    every = scope.by_kind["Warehouse"]
    rows = [
        (
            _where(entity),
            judged(entity, "Ready"),
            entity.text("status.catalog"),
            entity.text("status.storage"),
            number(entity.figure("status.tables")),
            when(entity.moment("status.checkTime"), scope.now),
        )
        for entity in every[:MAX_OTHERS]
    ]
    head = ("Warehouse", "Ready", "Catalog", "Storage", "Tables", "Checked")
    warehouses = _few(Grid(caption="Warehouses", head=head, rows=rows), len(every))
    servers = [_server(entity) for entity in every[:MAX_OTHERS] if entity.look("status.planning") is not None]
    if not servers:
        return warehouses
    served = Grid(caption="Planning servers", head=("Warehouse", "Ready", "Ready replicas"), rows=servers)
    return join((warehouses, table(served)))


def _server(entity: Entity) -> Sequence[Content]:
    ready, wanted = (number(entity.figure(f"status.planning.{name}")) for name in ("readyReplicas", "replicas"))
    return (_where(entity), judged(entity, "PlanningReady"), join((ready, " / ", wanted)))


def show_schedules(scope: Scope) -> Markup:
    """When schedules created MergeJobs, and when they do so next."""
    every = scope.by_kind["MergeSchedule"]
    rows = [
        (
            _where(entity),
            judged(entity, "Ready"),
            entity.table,
            entity.text("spec.schedule"),
            number(entity.figure("status.active")),
            when(entity.moment("status.lastScheduleTime"), scope.now),
            when(entity.moment("status.lastSuccessfulTime"), scope.now),
            _next(entity),
        )
        for entity in every[:MAX_OTHERS]
    ]
    head = ("Schedule", "Ready", "Table", "Times", "Active", "Last due", "Last success", "Next due")
    return _few(Grid(caption="Merge schedules", head=head, rows=rows), len(every))


def _next(entity: Entity) -> Content:
    moment = entity.moment("status.nextScheduleTime")
    if moment is None:
        return NOT_KNOWN
    return tag("time", moment.strftime("%Y-%m-%d %H:%M:%S UTC"), datetime=moment.isoformat())


def _few(grid: Grid, every: int) -> Markup:
    if not every:
        return tag("p", f"There are no {grid.caption.lower()}.", class_="note")
    more = every - len(grid.rows)
    rest = tag("p", count(more), " more are not shown.", class_="note") if more else NOTHING
    return join((table(grid), rest))
