"""The newest merges: funnel and map of files.

Called by the page.
"""

from __future__ import annotations

from skipstone_report.charts.filemap import draw_filemap
from skipstone_report.charts.funnel import draw_funnel, has_funnel
from skipstone_report.markup import NOTHING, Markup, count, join, tag, when
from skipstone_report.reading import Entity
from skipstone_report.scope import Scope, job_state, newest_first

MAX_MERGES = 8


def show_merges(scope: Scope) -> Markup:
    """Funnel and map of each of the newest merges whose status tells of files."""
    merges = [merge for merge in newest_first(scope.by_kind["MergeJob"]) if has_funnel(merge)]
    if not merges:
        return tag("p", "No MergeJob tells of its files yet.", class_="note")
    shown, more = merges[:MAX_MERGES], len(merges) - MAX_MERGES
    rest = tag("p", count(more), " older merges are not drawn.", class_="note") if more > 0 else NOTHING
    return join((*(_merge(merge, scope) for merge in shown), rest))


def _merge(merge: Entity, scope: Scope) -> Markup:
    ended = merge.moment("status.completionTime")
    about = (f"{job_state(merge) or 'state not known'}, table {merge.table or 'not known'}, ", when(ended, scope.now))
    where = f"{merge.namespace}/{merge.name}" if merge.namespace else merge.name
    head = tag("header", tag("h3", where), tag("p", *about, class_="note"))
    charts = tag("div", draw_funnel(merge), draw_filemap(merge), class_="pair")
    return tag("article", head, charts)
