"""The prune funnel of a merge as bars: how many files each stage let through, and why one was left out.

Called by the section of merges.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone_core.funnel import EXACT_JOIN, LeftOut

from skipstone_report.charts.drawing import Part, bar
from skipstone_report.markup import NOTHING, Grid, Markup, duration, fallback, number, tag
from skipstone_report.reading import Entity, Figure

#: What ``status.files`` counts after the stages, and the fill of its bar.
_ENDS = (
    ("candidate", "Candidates", "candidate"),
    ("touched", "Touched", "unchanged"),
    ("rewritten", "Rewritten", "rewritten"),
    ("marked", "Marked", "marked"),
)
MAX_STAGES = 16


@dataclass(frozen=True, kw_only=True)
class FunnelBar:
    """One row: ``files`` of the stage's output. ``note``: why the stage did not run, or what it says of how it did."""

    label: str
    fill: str
    files: Figure | None
    given: Figure | None = None
    left_out: bool = False
    note: str = ""
    in_vain: str = ""
    spent: Figure | None = None


def draw_funnel(merge: Entity) -> Markup:
    """The funnel of a MergeJob; nothing when its status tells of none."""
    bars = funnel_bars(merge)
    if not bars:
        return NOTHING
    whole = max((figure.value for row in bars for figure in (row.files, row.given) if figure is not None), default=0)
    rows = (_row(funnel_bar, whole) for funnel_bar in bars)
    return tag("div", tag("ol", *rows, class_="funnel"), fallback(_grid(merge, bars)))


def has_funnel(merge: Entity) -> bool:
    """Return whether the status of a MergeJob tells of files."""
    return merge.number("status.files.total") is not None or merge.size("status.funnel") > 0


def funnel_bars(merge: Entity) -> tuple[FunnelBar, ...]:
    """All files, each stage, then what the merge did to the candidates, as far as the status tells."""
    read = (_stage(merge, at) for at in range(min(merge.size("status.funnel"), MAX_STAGES)))
    stages = [stage for stage in read if stage is not None]
    total = merge.figure("status.files.total")
    start = [FunnelBar(label="All files", fill="kept", files=total)] if total is not None else []
    ends = [
        FunnelBar(label=label, fill=fill, files=merge.figure(f"status.files.{name}"))
        for name, label, fill in _ENDS
        if name == "candidate" or (is_decided(merge) and (name != "marked" or merge.number("status.files.marked")))
    ]
    # Candidates are what the stages before the merge itself leave.
    before = [stage for stage in stages if stage.label != EXACT_JOIN]
    rows = (*start, *before, *ends[:1], *(stage for stage in stages if stage.label == EXACT_JOIN), *ends[1:])
    return tuple(row for row in rows if row.files is not None or row.left_out)


def is_decided(merge: Entity) -> bool:
    """Return whether the merge has ended, so that its status counts what it found in the candidates."""
    return merge.is_so("Complete")


def _stage(merge: Entity, at: int) -> FunnelBar | None:
    path = f"status.funnel.{at}"
    name = merge.text(f"{path}.name")
    if not name:
        return None
    left_out = merge.text(f"{path}.leftOut")
    return FunnelBar(
        label=name,
        fill="candidate",
        files=merge.figure(f"{path}.filesOut"),
        given=merge.figure(f"{path}.filesIn"),
        left_out=bool(left_out),
        note=_note(left_out, merge.text(f"{path}.message")),
        in_vain=merge.text(f"{path}.falsePositiveRate"),
        spent=merge.figure(f"{path}.durationMs"),
    )


def _note(left_out: str, message: str) -> str:
    if not left_out:
        return message
    try:
        text = message or LeftOut(left_out).sentence
    except ValueError:
        text = message
    return f"Left out ({left_out}): {text.rstrip('.')}" if text else f"Left out ({left_out})"


def _row(funnel_bar: FunnelBar, whole: int) -> Markup:
    name, note = (
        tag("span", funnel_bar.label, class_="stage"),
        tag("small", funnel_bar.note) if funnel_bar.note else NOTHING,
    )
    if funnel_bar.left_out:
        return tag("li", name, note)
    parts = (
        [Part(label=funnel_bar.label, amount=funnel_bar.files.value, fill=funnel_bar.fill, figure=funnel_bar.files)]
        if funnel_bar.files
        else []
    )
    drawn = bar(
        parts,
        whole,
        f"{funnel_bar.label}: {funnel_bar.files.value:,} of {whole:,} files" if funnel_bar.files else funnel_bar.label,
    )
    return tag("li", name, drawn, tag("span", number(funnel_bar.files), class_="amount"), note)


def _grid(merge: Entity, bars: tuple[FunnelBar, ...]) -> Grid:
    rows = tuple(
        (
            funnel_bar.label,
            number(funnel_bar.given),
            number(funnel_bar.files),
            funnel_bar.in_vain,
            duration(funnel_bar.spent),
            funnel_bar.note,
        )
        for funnel_bar in bars
    )
    return Grid(
        caption=f"Prune funnel of {merge.name}",
        head=("Stage", "Files in", "Files out", "Let through in vain", "Time", "Note"),
        rows=rows,
    )
