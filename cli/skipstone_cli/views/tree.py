"""Objects as a tree: Warehouses hold Tables, those hold indexes, schedules and jobs.

Called by ``status``. Takes time in proportion to the number of objects. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from skipstone_cli.kinds import INDEX, JOB_KINDS, SCHEDULE, TABLE, WAREHOUSE, Item, ResourceKind, Target
from skipstone_cli.reading import JsonObject, name_of, namespace_of, text_of
from skipstone_cli.views.details import Detail, find_details
from skipstone_cli.views.standings import FINISHED, Assessment, State, judge

#: So many jobs are shown below a Table, over all kinds of jobs together.
SHOWN_JOBS = 3
ABSENT = Assessment(State.UNKNOWN, "", "does not exist")
UNNAMED = Assessment(State.UNKNOWN, "", "no Warehouse is named")


@dataclass(frozen=True)
class OlderJobs:
    """Jobs of a Table that are not shown."""

    total: int
    failed: int
    unfinished: int


@dataclass(frozen=True, kw_only=True)
class Branch:
    """One object and what is below it. ``exists`` False: others name it, and it is missing or may not be listed."""

    kind: ResourceKind
    namespace: str
    name: str
    standing: Assessment
    details: Mapping[str, Detail]
    exists: bool = True
    children: tuple[Branch, ...] = ()
    older: OlderJobs | None = None


@dataclass(frozen=True)
class Place:
    """The name of an object in its namespace."""

    namespace: str
    name: str


def build_tree(
    objects: Mapping[ResourceKind, Sequence[JsonObject]],
    *,
    every_job: bool = False,
    target: Target | None = None,
    unlisted: Collection[ResourceKind] = (),
) -> tuple[Branch, ...]:
    """The trees of all Warehouses, and of those that are not found and that Tables name.

    Of the jobs of a Table the newest are shown, or all; a ``target`` is shown whatever its age. ``unlisted``: kinds
    that the user may not list, of which nobody can say that one does not exist.
    """
    below: defaultdict[Place, list[Branch]] = defaultdict(list)
    jobs: defaultdict[Place, list[Item]] = defaultdict(list)
    for kind in (INDEX, SCHEDULE):
        for obj in _sorted(objects.get(kind, ())):
            below[_table_of(kind, obj)].append(_branch(kind, obj))
    for kind in JOB_KINDS:
        for obj in objects.get(kind, ()):
            jobs[_table_of(kind, obj)].append(Item(kind, obj))
    tables = _parents(TABLE, objects.get(TABLE, ()), {*below, *jobs}, unlisted)
    held: defaultdict[Place, list[Branch]] = defaultdict(list)
    for place, branch, warehouse in tables:
        newest = sorted(jobs[place], key=_age, reverse=True)
        count = len(newest) if every_job else SHOWN_JOBS
        wanted = [job for job in newest[count:] if _is_target(job, target)]
        shown, rest = [*newest[:count], *wanted], [job for job in newest[count:] if job not in wanted]
        children = (*below[place], *(_branch(job.kind, job.obj) for job in shown))
        older = _count(rest)
        held[warehouse].append(replace(branch, children=children, older=older))
    roots = _parents(WAREHOUSE, objects.get(WAREHOUSE, ()), set(held), unlisted)
    return tuple(replace(branch, children=tuple(held[place])) for place, branch, _ in roots)


def narrow(tree: Iterable[Branch], target: Target, namespace: str) -> tuple[Branch, ...]:
    """The target with all that is below it, and the objects that lead to it without what else they hold."""
    return tuple(narrowed for branch in tree if (narrowed := _narrowed(branch, target, namespace)) is not None)


def _narrowed(branch: Branch, target: Target, namespace: str) -> Branch | None:
    if (branch.kind, branch.name, branch.namespace) == (target.kind, target.name, namespace):
        return branch
    children = narrow(branch.children, target, namespace)
    return replace(branch, children=children, older=None) if children else None


def _sorted(objects: Iterable[JsonObject]) -> list[JsonObject]:
    return sorted(objects, key=lambda obj: (namespace_of(obj), name_of(obj)))


def _age(job: Item) -> tuple[str, str]:
    return text_of(job.obj, "metadata", "creationTimestamp"), name_of(job.obj)


def _is_target(job: Item, target: Target | None) -> bool:
    return target is not None and job.kind is target.kind and name_of(job.obj) == target.name


def _place(obj: JsonObject) -> Place:
    return Place(namespace_of(obj), name_of(obj))


def _table_of(kind: ResourceKind, obj: JsonObject) -> Place:
    return Place(namespace_of(obj), table_name(kind, obj))


def table_name(kind: ResourceKind, obj: JsonObject) -> str:
    """The name of the Table that an index, a job or a schedule is for."""
    path = ("spec", "mergeTemplate", "spec", "tableRef", "name") if kind is SCHEDULE else ("spec", "tableRef", "name")
    return text_of(obj, *path)


def _branch(kind: ResourceKind, obj: JsonObject) -> Branch:
    return Branch(
        kind=kind,
        namespace=namespace_of(obj),
        name=name_of(obj),
        standing=judge(kind, obj),
        details=find_details(kind, obj),
    )


def _parents(
    kind: ResourceKind, objects: Iterable[JsonObject], named: Iterable[Place], unlisted: Collection[ResourceKind]
) -> list[tuple[Place, Branch, Place]]:
    """Each object of ``kind`` with its place and that of its Warehouse, and those that are named and not found."""
    rows = [
        (_place(obj), _branch(kind, obj), Place(namespace_of(obj), text_of(obj, "spec", "warehouseRef", "name")))
        for obj in objects
    ]
    known = {place for place, _, _ in rows}
    for place in named:
        if place not in known:
            standing = _unfound(kind, place, unlisted)
            absent = Branch(
                kind=kind, namespace=place.namespace, name=place.name, standing=standing, details={}, exists=False
            )
            rows.append((place, absent, Place(place.namespace, "")))
    return sorted(rows, key=lambda row: (row[0].namespace, row[0].name))


def _unfound(kind: ResourceKind, place: Place, unlisted: Collection[ResourceKind]) -> Assessment:
    """Return the state of an object that others name and that was not listed."""
    if not place.name and TABLE not in unlisted:
        return UNNAMED
    hidden = kind if place.name else TABLE
    return (
        Assessment(State.UNKNOWN, "", f"not known: you may not list {hidden.plural}") if hidden in unlisted else ABSENT
    )


def _count(jobs: Iterable[Item]) -> OlderJobs | None:
    states = [judge(job.kind, job.obj).state for job in jobs]
    if not states:
        return None
    unfinished = sum(state not in FINISHED for state in states)
    return OlderJobs(len(states), states.count(State.FAILED), unfinished)
