"""The whole page: head, sections in their order, foot.

The package's entry: the CLI, the operator and ``__main__`` call ``render_report``. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from skipstone_report.charts.drawing import patterns
from skipstone_report.markup import Markup, join, tag
from skipstone_report.reading import read_entities, showable
from skipstone_report.scope import Scope, look_at
from skipstone_report.sections.indexing import show_coverage
from skipstone_report.sections.merging import show_merges
from skipstone_report.sections.overview import show_counts, show_problems
from skipstone_report.sections.runs import show_jobs, show_lag, show_stages
from skipstone_report.sections.tables import show_schedules, show_tables, show_warehouses
from skipstone_report.style import STYLE

#: The page runs nothing and asks nobody for anything, whatever is in it.
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the page; ``slug`` is its anchor."""

    slug: str
    title: str
    show: Callable[[Scope], Markup]


SECTIONS = (
    Section(slug="problems", title="Open problems", show=show_problems),
    Section(slug="merges", title="What merges read", show=show_merges),
    Section(slug="coverage", title="Coverage of segments by indexes", show=show_coverage),
    Section(slug="lag", title="Lag over time", show=show_lag),
    Section(slug="stages", title="Stages of runs", show=show_stages),
    Section(slug="tables", title="Tables and their health", show=show_tables),
    Section(slug="schedules", title="Merge schedules", show=show_schedules),
    Section(slug="warehouses", title="Warehouses", show=show_warehouses),
    Section(slug="jobs", title="Newest jobs", show=show_jobs),
)


def render_report(objects: Iterable[object], now: datetime, title: str = "") -> str:
    """The page about these JSON objects as the API server gives them, as seen at ``now``.

    ``now`` has a time zone. ``title``: what the page is about; the namespaces of the objects when empty. Objects of
    other kinds are left out, and what in a status has a wrong type counts as absent. Never raises for what an object
    holds. The page has a bounded size: the newest and worst of each kind are shown, and the rest counted.
    """
    scope = look_at(read_entities(objects), now.astimezone(UTC))
    named = showable(title) or _about(scope.namespaces)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=CONTENT_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"Skipstone report: {named}"),
        tag("style", Markup(STYLE)),
    )
    body = tag("body", patterns(), _banner(scope, named), _main(scope), _foot())
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en').html}\n"


def _about(namespaces: tuple[str, ...]) -> str:
    if not namespaces:
        return "no resources"
    if len(namespaces) > 5:
        return f"{len(namespaces)} namespaces"
    return ("namespace " if len(namespaces) == 1 else "namespaces ") + ", ".join(namespaces)


def _banner(scope: Scope, named: str) -> Markup:
    made = tag("time", scope.now.strftime("%Y-%m-%d %H:%M:%S UTC"), datetime=scope.now.isoformat())
    links = (tag("li", tag("a", section.title, href=f"#{section.slug}")) for section in SECTIONS)
    return tag(
        "header",
        tag("h1", "Skipstone report"),
        tag("p", f"About {named}, as the API server had it at ", made, "."),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        class_="banner",
    )


def _main(scope: Scope) -> Markup:
    sections = (
        tag(
            "section", tag("h2", section.title, id=f"{section.slug}"), section.show(scope), aria_labelledby=section.slug
        )
        for section in SECTIONS
    )
    return tag("main", show_counts(scope), join(sections))


def _foot() -> Markup:
    text = "Numbers are those of the statuses. A dash stands for what a status does not tell. Times are in UTC."
    return tag("footer", tag("p", text))
