"""Lag of tables, stages of the newest runs, and the newest jobs.

Called by the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from skipstone_report.charts.drawing import key
from skipstone_report.charts.lag import draw_lag, find_landings, find_syncs
from skipstone_report.charts.waterfall import RUNS, draw_waterfall, read_stages
from skipstone_report.markup import NOTHING, Content, Grid, Markup, count, join, number, table, tag, when
from skipstone_report.reading import Entity
from skipstone_report.scope import Scope, by_table, job_state

MAX_LAGS = 12
MAX_RUNS = 12
MAX_JOBS = 200
#: What became of rows, by kind of job.
_ROWS = {"LoadJob": ("rowsLoaded",), "MergeJob": ("rows.updated", "rows.inserted", "rows.deleted")}


def show_lag(scope: Scope) -> Markup:
    """A chart for each of the tables whose jobs ended last."""
    indexes = by_table(scope.by_kind["SecondaryIndex"])
    landed = {where: find_landings(jobs, scope.now) for where, jobs in by_table(scope.jobs).items()}
    tables = [where for where, landings in landed.items() if landings]
    if not tables:
        return tag("p", "No job has ended yet.", class_="note")
    tables.sort(key=lambda where: (-landed[where][-1].ended.timestamp(), str(where)))
    charts = []
    for where in tables[:MAX_LAGS]:
        syncs = find_syncs(indexes.get(where, ()), scope.now)
        charts.append(tag("article", tag("h3", str(where)), draw_lag(str(where), landed[where], syncs, scope.now)))
    more = len(tables) - len(charts)
    rest = tag("p", count(more), " more tables are not drawn.", class_="note") if more else NOTHING
    return join((_marks(), tag("div", *charts, class_="columns"), rest))


def _marks() -> Markup:
    words = {
        "mark-merge": "MergeJob",
        "mark-load": "LoadJob",
        "mark-failed": "failed job",
        "mark-sync": "last sync of an index",
    }
    entries = ((_mark(name), f" {text}") for name, text in words.items())
    note = "Across: when a job ended. Up: how long after its scheduled time, or else its creation, that was."
    return join((tag("p", note, class_="note"), key(entries)))


def _mark(name: str) -> Markup:
    return tag("svg", tag("use", href=f"#{name}", x=8, y=8), class_="mark", width=16, height=16, aria_hidden="true")


@dataclass(frozen=True, kw_only=True)
class _Run:
    owner: Entity
    path: str
    ended: datetime


def show_stages(scope: Scope) -> Markup:
    """The newest runs that tell how long their stages took."""
    runs = [
        _Run(owner=entity, path=path, ended=ended)
        for entities in scope.by_kind.values()
        for entity in entities
        for path in RUNS
        if (ended := entity.moment(f"{path}.completionTime")) is not None and read_stages(entity, path)
    ]
    if not runs:
        return tag("p", "No run tells of its stages yet.", class_="note")
    runs.sort(key=lambda run: (-run.ended.timestamp(), run.owner.key, run.path))
    more = len(runs) - MAX_RUNS
    rest = tag("p", count(more), " older runs are not drawn.", class_="note") if more > 0 else NOTHING
    note = "A status holds how long each stage took, not when it began: stages are drawn one after the other."
    drawn = tag("div", *(_stages(run, scope) for run in runs[:MAX_RUNS]), class_="columns")
    return join((tag("p", note, class_="note"), drawn, rest))


def _stages(run: _Run, scope: Scope) -> Markup:
    owner = run.owner
    title = f"{owner.text(f'{run.path}.kind') or 'Run'} of {owner.kind} {owner.name}"
    result = owner.text(f"{run.path}.result") or "result not known"
    head = (tag("h3", title), tag("p", f"{result}, ", when(run.ended, scope.now), class_="note"))
    return tag("article", *head, draw_waterfall(title, read_stages(owner, run.path)))


def show_jobs(scope: Scope) -> Markup:
    """The newest jobs; the others are counted."""
    jobs = scope.jobs
    if not jobs:
        return tag("p", "There are no jobs.", class_="note")
    head = ("Job", "Kind", "Table", "State", "Attempts", "Created", "Ended", "Duration", "Pruned", "Rows")
    grid = Grid(caption="Newest jobs", head=head, rows=[_job(job, scope) for job in jobs[:MAX_JOBS]])
    more = len(jobs) - len(grid.rows)
    rest = tag("p", count(more), " older jobs are not shown.", class_="note") if more else NOTHING
    return join((table(grid), rest))


def _job(job: Entity, scope: Scope) -> Sequence[Content]:
    state = job_state(job)
    style = {"Complete": "yes", "Failed": "no"}.get(state, "none")
    sign = {"Complete": "✓ ", "Failed": "✗ "}.get(state, "… ")
    reason = job.text("status.reason")
    why = tag("small", reason) if reason not in ("", state) else NOTHING
    return (
        f"{job.namespace}/{job.name}" if job.namespace else job.name,
        job.kind,
        job.table,
        join((tag("span", tag("span", sign, aria_hidden="true"), state or "not known", class_=style), why)),
        number(job.figure("status.attempts")),
        when(job.created, scope.now),
        when(job.moment("status.completionTime"), scope.now),
        job.text("status.duration"),
        job.text("status.pruned"),
        tag("span", _rows(job), class_="wide"),
    )


def _rows(job: Entity) -> Content:
    parts = [
        part
        for path in _ROWS.get(job.kind, ())
        if (figure := job.figure(f"status.{path}")) is not None
        for part in (join((number(figure), f" {path.removeprefix('rows.').removeprefix('rows').lower()}")), ", ")
    ]
    return join(parts[:-1])
