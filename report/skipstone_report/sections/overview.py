"""What there is, and what of it needs somebody.

Called by the page.
"""

from __future__ import annotations

from collections import Counter

from skipstone_report.markup import NOTHING, Markup, count, join, tag, when
from skipstone_report.problems import OpenProblem, Urgency
from skipstone_report.reading import PLURALS
from skipstone_report.scope import Scope, job_state

MAX_PROBLEMS = 100


def show_counts(scope: Scope) -> Markup:
    """How many objects of each kind there are, how jobs ended, and how many problems are open."""
    tiles = [_tile(PLURALS[kind], len(entities)) for kind, entities in scope.by_kind.items()]
    states = Counter(job_state(job) for job in scope.jobs)
    ended = states["Complete"] + states["Failed"]
    tiles += [
        _tile("Jobs complete", states["Complete"]),
        _tile("Jobs failed", states["Failed"], "bad" if states["Failed"] else ""),
        _tile("Jobs not ended", states.total() - ended),
    ]
    urgent = sum(problem.urgency is Urgency.ACT for problem in scope.problems)
    tiles.append(_tile("Problems that need you", urgent, "bad" if urgent else ""))
    return tag("dl", *tiles, class_="tiles")


def _tile(label: str, value: int, style: str = "") -> Markup:
    return tag("div", tag("dt", label), tag("dd", count(value)), class_=f"tile {style}".strip())


def show_problems(scope: Scope) -> Markup:
    """Open problems with their way out, the urgent ones first."""
    if not scope.problems:
        return tag("p", "Nothing needs you, and nothing waits.", class_="good")
    shown = scope.problems[:MAX_PROBLEMS]
    more = len(scope.problems) - len(shown)
    rest = tag("p", count(more), " more problems are not shown.", class_="note") if more else NOTHING
    return join((tag("ul", *(_problem(problem, scope) for problem in shown), class_="problems"), rest))


def _problem(problem: OpenProblem, scope: Scope) -> Markup:
    entity = problem.entity
    where = f"{entity.namespace}/{entity.name}" if entity.namespace else entity.name
    head = tag(
        "h3",
        tag("span", problem.urgency.words, class_=f"badge {problem.urgency.name.lower()}"),
        f" {entity.kind} {where}: ",
        tag("code", problem.reason or problem.condition),
    )
    facts = [
        ("Is", problem.condition),
        ("Means", problem.meaning),
        ("Says", problem.message),
        ("What to do", problem.way_out),
    ]
    rows = [join((tag("dt", label), tag("dd", text))) for label, text in facts if text]
    since = join((tag("dt", "Since"), tag("dd", when(problem.since, scope.now)))) if problem.since else NOTHING
    return tag("li", head, tag("dl", *rows, since))
