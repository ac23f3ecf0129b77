"""The stages of a run, one below the other, each beginning where the one before it ends.

Called by the section of runs. The status holds how long each stage took and not when it began, and the API server keeps
its names in the order of the alphabet: the order here is the one in which runs go through their stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skipstone_report.charts.drawing import percent
from skipstone_report.markup import Markup, duration, tag
from skipstone_report.reading import Entity, Figure

#: Stages of all runs, in the order in which runs go through them; others follow by name.
ORDER = (
    *("start", "session", "storage", "catalog", "open", "check", "plan", "read", "prune", "table", "write", "rewrite"),
    *("snapshot", "build", "merge", "commit", "index", "state", "drop", "confirm", "report"),
)
#: Fields of statuses that hold a run that has ended.
RUNS = ("status.lastRun", "status.lastMaintainRun", "status.lastObserveRun")
MAX_STAGES = 32


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage and its milliseconds."""

    name: str
    spent: Figure


def read_stages(owner: Entity, run: str) -> tuple[Stage, ...]:
    """The stages of the run in the field ``run``, in order."""
    names = owner.names(f"{run}.stagesMs")[:MAX_STAGES]
    figures = {name: owner.figure(f"{run}.stagesMs.{name}") for name in names}
    known = [Stage(name=name, spent=spent) for name, spent in figures.items() if spent is not None]
    return tuple(
        sorted(known, key=lambda stage: (ORDER.index(stage.name) if stage.name in ORDER else len(ORDER), stage.name))
    )


def draw_waterfall(title: str, stages: Sequence[Stage]) -> Markup:
    """One row for each stage: name, bar, time. The list is its own table."""
    whole, at = sum(stage.spent.value for stage in stages), 0
    rows = list[Markup]()
    for stage in stages:
        rows.append(_row(stage, start=percent(at, whole), length=percent(stage.spent.value, whole)))
        at += stage.spent.value
    return tag("ol", *rows, class_="waterfall", aria_label=f"Stages of {title}")


def _row(stage: Stage, *, start: float, length: float) -> Markup:
    box = tag(
        "rect",
        x=f"{min(start, 99.5)}%",
        width=f"{max(length, 0.5)}%",
        height="100%",
        fill="url(#bar-candidate)",
        data_value=stage.spent.value,
        data_from=stage.spent.source,
    )
    drawn = tag("svg", tag("rect", width="100%", height="100%", class_="frame"), box, class_="bar", height=14)
    name = tag("span", stage.name, class_="stage")
    return tag("li", name, tag("span", drawn, aria_hidden="true"), tag("span", duration(stage.spent), class_="amount"))
