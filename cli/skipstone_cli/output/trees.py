"""The tree of ``status`` as lines and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from skipstone_cli.kinds import INDEX, JOB_KINDS, SCHEDULE, TABLE, WAREHOUSE
from skipstone_cli.output.screen import Line, Piece
from skipstone_cli.views.details import Detail
from skipstone_cli.views.standings import State
from skipstone_cli.views.tree import Branch, OlderJobs

#: Messages are cut after so many characters; ``why`` shows all of them.
MAX_MESSAGE = 160
STYLES = {
    State.READY: "green",
    State.COMPLETE: "green",
    State.RUNNING: "cyan",
    State.WAITING: "yellow",
    State.FAILED: "bold red",
    State.DELETING: "magenta",
    State.UNKNOWN: "yellow",
}
DIM = "bright_black"


def tree_lines(tree: Sequence[Branch], *, namespaces: bool) -> Iterator[Line]:
    """The lines of all trees; ``namespaces``: with the namespace of each root."""
    for root in tree:
        prefix = f"{root.namespace}  " if namespaces else ""
        yield [Piece(prefix, DIM), *branch_line(root)]
        yield from _below(root, "")


def _below(branch: Branch, indent: str) -> Iterator[Line]:
    rows: list[Branch | OlderJobs] = [*branch.children, *([branch.older] if branch.older else [])]
    for number, row in enumerate(rows, start=1):
        last = number == len(rows)
        lead = Piece(indent + ("└── " if last else "├── "), DIM)
        if isinstance(row, OlderJobs):
            yield [lead, Piece(older_text(row), DIM)]
            continue
        yield [lead, *branch_line(row)]
        yield from _below(row, indent + ("    " if last else "│   "))


def branch_line(branch: Branch) -> list[Piece]:
    """One object on one line: name, state, the numbers that matter, and what is wrong."""
    name = Piece(f"{branch.kind.short}/{branch.name}  ", "bold")
    if not branch.exists:
        return [Piece(f"{branch.kind.short}/{branch.name or '-'}  ", "bold"), Piece(branch.standing.message, "yellow")]
    standing = branch.standing
    spans = [name, Piece(standing.state.value, STYLES[standing.state])]
    if details := list(_details(branch)):
        spans.append(Piece("  " + "  ".join(details)))
    if trouble := _trouble(branch):
        spans.append(Piece(f"  {shortened(trouble)}", STYLES[standing.state]))
    return spans


def _details(branch: Branch) -> Iterator[str]:
    details = branch.details
    if branch.kind is WAREHOUSE:
        yield from _texts(details.get("catalog"), details.get("storage"))
        if details.get("planning"):
            yield f"planning {details['planning']} at {details.get('planningUrl', '?')}"
    elif branch.kind is TABLE:
        yield from _table(branch)
    elif branch.kind is INDEX:
        yield f"SYNCED {details.get('synced') or 'unknown'}"
        if details.get("missing"):
            yield f"missing {details['missing']} (lag {details.get('lagSegments', '?')} segments)"
    elif branch.kind is SCHEDULE:
        yield from _schedule(branch)
    elif branch.kind in JOB_KINDS:
        yield from _texts(
            "dry run" if details.get("dryRun") else None, details.get("duration"), details.get("progress")
        )


def _table(branch: Branch) -> Iterator[str]:
    rows, healthy = branch.details.get("rows"), branch.details.get("healthy")
    if isinstance(rows, int):
        yield f"{rows:,} rows"
    if healthy is not None:
        yield "Healthy" if healthy == "True" else f"Healthy {healthy}: {branch.details.get('health', '')}"
    if branch.details.get("writer"):
        yield f"written by {branch.details['writer']}"


def _schedule(branch: Branch) -> Iterator[str]:
    yield from _texts(branch.details.get("schedule"))
    if branch.details.get("suspended"):
        yield "suspended"
    elif branch.details.get("next"):
        yield f"next {branch.details['next']}"


def _texts(*values: Detail) -> Iterator[str]:
    yield from (str(value) for value in values if value not in (None, ""))


def _trouble(branch: Branch) -> str:
    standing = branch.standing
    if standing.state in (State.READY, State.COMPLETE):
        return ""
    text = f"{standing.reason}: {standing.message}" if standing.reason else standing.message
    error = branch.details.get("lastError")
    if error and standing.state is not State.FAILED:
        text = f"{text}; last error: {error}"
    return text.removesuffix(": ")


def shortened(text: str) -> str:
    """``text`` cut to what fits beside a name."""
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def older_text(older: OlderJobs) -> str:
    """The jobs that are not shown, in words."""
    parts = [f"{older.total} older job{'s' if older.total > 1 else ''}"]
    parts += [f"{older.failed} failed"] if older.failed else []
    parts += [f"{older.unfinished} unfinished"] if older.unfinished else []
    return f"{', '.join(parts)} (--all shows them)"


def tree_json(tree: Iterable[Branch]) -> list[dict[str, object]]:
    """The trees as JSON objects."""
    return [_branch_json(branch) for branch in tree]


def _branch_json(branch: Branch) -> dict[str, object]:
    older = branch.older
    return {
        "kind": branch.kind.name,
        "namespace": branch.namespace,
        "name": branch.name,
        "found": branch.exists,
        "state": branch.standing.state.value,
        "reason": branch.standing.reason,
        "message": branch.standing.message,
        "details": dict(branch.details),
        **(
            {"olderJobs": {"total": older.total, "failed": older.failed, "unfinished": older.unfinished}}
            if older is not None
            else {}
        ),
        "children": tree_json(branch.children),
    }
