"""Which commits are in the history of a table's main branch, told by sequence numbers when snapshots are gone.

Used by the data plane's memory of transactions. Retained snapshots tell exactly what is an ancestor of the head. Once
they expire, only what was written down before can tell: every commit of ours keeps a *lineage*, the spans of sequence
numbers whose commits were not in its own history. Without a rollback there are none.
Must not know tables: only numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from skipstone_core.errors import ContractViolation

#: Spans that a lineage keeps; when there are more, the oldest become one span of commits that cannot be told.
MAX_SPANS = 64


class Standing(StrEnum):
    """Whether a commit is in the history of the head."""

    APPLIED = "applied"
    ROLLED_BACK = "rolledBack"
    UNREPORTED = "untold"


@dataclass(frozen=True, order=True)
class Span:
    """Sequence numbers ``first`` to ``last``, both included; ``standing`` is never APPLIED."""

    first: int
    last: int
    standing: Standing


@dataclass(frozen=True)
class Link:
    """A retained ancestor of the head. ``is_ours``: a commit that a transaction of ours made on main."""

    snapshot_id: int
    sequence_number: int
    is_ours: bool = False


@dataclass(frozen=True)
class Lineage:
    """How every commit of ours up to the sequence number ``at`` stands; those in no span are applied.

    ``seen_from``: id of the snapshot in whose history they stand so; None: that of our newest commit.
    """

    at: int = 0
    spans: tuple[Span, ...] = ()
    seen_from: int | None = None

    def standing(self, sequence_number: int) -> Standing:
        """How our commit of this sequence number stands; 0 is a number that nobody wrote down."""
        if not 0 < sequence_number <= self.at:
            return Standing.UNREPORTED
        for span in self.spans:
            if span.first <= sequence_number <= span.last:
                return span.standing
        return Standing.APPLIED


def plan_lineage(
    known: Lineage, chain: Sequence[Link], known_chain: Sequence[Link], alive: frozenset[int] = frozenset()
) -> Lineage:
    """The lineage as seen from the head whose retained ancestors are ``chain``, newest first, itself included.

    ``known`` was right for a snapshot whose retained ancestors are ``known_chain``; both may be cut by expiry.
    ``alive``: sequence numbers of commits of ours of which the head still holds files.
    """
    anchor = _find_anchor(known, chain, known_chain)
    floor = anchor.sequence_number if anchor else 0
    spans = _capped(known.spans, floor)
    if anchor is None and chain:
        # No retained snapshot connects the head with what we know: what is older than all of them is in doubt.
        floor = min(known.at, chain[-1].sequence_number - 1)
        proof = max((number for number in alive if known.standing(number) is Standing.APPLIED), default=0)
        doubt = [Span(proof + 1, floor, Standing.UNREPORTED)] if proof < floor else []
        spans = _capped(known.spans, min(proof, floor)) + doubt
    spans += _gaps(floor + 1, known.at, {link.sequence_number for link in chain})
    return Lineage(known.at, _bounded(spans))


def plan_corrections(lineage: Lineage, standings: Mapping[int, Standing]) -> Lineage:
    """``lineage`` with the commits of these sequence numbers standing as told."""
    spans = list(lineage.spans)
    for number, standing in standings.items():
        spans = [piece for span in spans for piece in _without(span, number)]
        if standing is not Standing.APPLIED:
            spans.append(Span(number, number, standing))
    return Lineage(lineage.at, _bounded(sorted(spans)))


def encode_lineage(lineage: Lineage) -> str:
    """The value of the table property."""
    marks = {Standing.ROLLED_BACK: "r", Standing.UNREPORTED: "u"}
    rows = [[span.first, span.last, marks[span.standing]] for span in lineage.spans]
    seen = {"from": str(lineage.seen_from)} if lineage.seen_from is not None else {}
    return json.dumps({"at": lineage.at, "spans": rows, **seen}, separators=(",", ":"))


def decode_lineage(text: str) -> Lineage:
    """Read what ``encode_lineage`` wrote. Raises ContractViolation when it is something else."""
    marks = {"r": Standing.ROLLED_BACK, "u": Standing.UNREPORTED}
    try:
        raw = json.loads(text)
        spans = tuple(Span(int(first), int(last), marks[mark]) for first, last, mark in raw["spans"])
        seen = raw.get("from")
        return Lineage(int(raw["at"]), spans, int(seen) if seen is not None else None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractViolation(f"the lineage of a table cannot be read: {error}") from error


def _find_anchor(known: Lineage, chain: Sequence[Link], known_chain: Sequence[Link]) -> Link | None:
    """The newest ancestor of the head that is in the history that ``known`` describes."""
    shared = {link.snapshot_id for link in known_chain}
    for link in chain:
        is_applied = link.is_ours and known.standing(link.sequence_number) is Standing.APPLIED
        if link.snapshot_id in shared or is_applied:
            return link
    return None


def _gaps(first: int, last: int, kept: set[int]) -> list[Span]:
    """The numbers from ``first`` to ``last`` that are not in ``kept``."""
    spans, start = [], first
    for number in sorted(number for number in kept if first <= number <= last):
        if start < number:
            spans.append(Span(start, number - 1, Standing.ROLLED_BACK))
        start = number + 1
    return spans + ([Span(start, last, Standing.ROLLED_BACK)] if start <= last else [])


def _capped(spans: Sequence[Span], last: int) -> list[Span]:
    """Return the parts of ``spans`` that are not above ``last``."""
    return [Span(span.first, min(span.last, last), span.standing) for span in spans if span.first <= last]


def _without(span: Span, number: int) -> list[Span]:
    if not span.first <= number <= span.last:
        return [span]
    pieces = (Span(span.first, number - 1, span.standing), Span(number + 1, span.last, span.standing))
    return [piece for piece in pieces if piece.first <= piece.last]


def _bounded(spans: list[Span]) -> tuple[Span, ...]:
    """Neighbors of one standing joined; the oldest given up when there are more than may be kept."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].standing is span.standing and joined[-1].last + 1 == span.first:
            joined[-1] = Span(joined[-1].first, span.last, span.standing)
        else:
            joined.append(span)
    if len(joined) <= MAX_SPANS:
        return tuple(joined)
    surplus = joined[: len(joined) - MAX_SPANS + 1]
    return (Span(surplus[0].first, surplus[-1].last, Standing.UNREPORTED), *joined[len(surplus) :])
