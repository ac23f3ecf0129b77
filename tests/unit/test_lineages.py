"""Lineages against a model that forgets nothing: what they tell is true, whatever was rolled back and expired."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.errors import ContractViolation
from skipstone_core.history.lineages import (
    MAX_SPANS,
    Lineage,
    Link,
    Span,
    Standing,
    decode_lineage,
    encode_lineage,
    plan_corrections,
    plan_lineage,
)

#: What happens next, and a number that chooses one of the snapshots it may happen to.
steps = st.lists(
    st.tuples(st.sampled_from(["ours", "ours", "other", "main", "expire", "tidy"]), st.integers(0, 9)), max_size=30
)


@dataclass
class Table:
    """Snapshots are numbers from 1, which are their sequence numbers too."""

    parents: dict[int, int] = field(default_factory=dict)
    ours: set[int] = field(default_factory=set)
    retained: set[int] = field(default_factory=set)
    head: int = 0
    lineage: Lineage = field(default_factory=Lineage)
    expired: bool = False

    def chain(self, start: int, *, whole: bool = False) -> list[Link]:
        """Ancestors as far as they are retained, or all."""
        found = []
        while start and (whole or start in self.retained):
            found.append(Link(start, start, start in self.ours))
            start = self.parents[start]
        return found

    def seen(self) -> Lineage:
        """The lineage from the present head."""
        seen_from = self.lineage.at if self.lineage.seen_from is None else self.lineage.seen_from
        known = self.chain(seen_from) if seen_from in self.retained else []
        return plan_lineage(self.lineage, self.chain(self.head), known)

    def step(self, word: str, number: int) -> None:
        """Do one step."""
        some = sorted(self.retained)
        if word in ("ours", "other"):
            new = len(self.parents) + 1
            if word == "ours":
                self.ours.add(new)
                self.lineage = Lineage(new, self.seen().spans)
            self.parents[new], self.head = self.head, new
            self.retained.add(new)
        elif word == "main" and some:
            self.head = some[number % len(some)]
        elif word == "expire" and some and (victim := some[number % len(some)]) != self.head:
            self.retained.remove(victim)
            self.expired = True
        elif word == "tidy" and some:  # an expiry of ours: the newest of main stay
            if self.lineage.at:
                self.lineage = replace(self.seen(), seen_from=self.head)
            tagged = {one for one in self.retained if one % 2} if number > 4 else set()
            self.retained = tagged | {link.snapshot_id for link in self.chain(self.head)[: number % 5 + 1]}
            self.expired = self.expired or bool(tagged)  # main may be set to one of them, whose ancestors are gone


@given(steps)
def test_what_a_lineage_tells_is_true_and_without_expiry_it_tells_all(taken: list[tuple[str, int]]) -> None:
    table = Table()
    for word, number in taken:
        table.step(word, number)
        applied = {link.sequence_number for link in table.chain(table.head, whole=True)}
        lineage = decode_lineage(encode_lineage(table.seen()))
        for commit in table.ours:
            told = lineage.standing(commit)
            truth = Standing.APPLIED if commit in applied else Standing.ROLLED_BACK
            assert told is truth or (told is Standing.UNREPORTED and table.expired)


@given(steps)
def test_an_expiry_of_ours_leaves_nothing_in_doubt(taken: list[tuple[str, int]]) -> None:
    table = Table()
    for word, number in taken:
        if word != "expire":
            table.step(word, number % 5)
        applied = {link.sequence_number for link in table.chain(table.head, whole=True)}
        for commit in table.ours:
            truth = Standing.APPLIED if commit in applied else Standing.ROLLED_BACK
            assert table.seen().standing(commit) is truth


def test_without_a_rollback_nothing_is_kept() -> None:
    table = Table()
    for word in ("ours", "other", "ours", "other"):
        table.step(word, 0)
    assert table.seen() == Lineage(3)


def test_files_that_are_still_there_tell_what_metadata_cannot() -> None:
    known = Lineage(5, (Span(2, 2, Standing.ROLLED_BACK),))
    lineage = plan_lineage(known, [Link(8, 8)], [], frozenset({4}))
    assert [lineage.standing(number) for number in range(1, 6)] == [
        Standing.APPLIED,
        Standing.ROLLED_BACK,
        Standing.APPLIED,
        Standing.APPLIED,
        Standing.UNREPORTED,
    ]


def test_a_lineage_is_bounded_and_errs_towards_doubt() -> None:
    corrections = dict.fromkeys(range(2, 402, 2), Standing.ROLLED_BACK)
    lineage = plan_corrections(Lineage(1000), corrections)
    assert len(lineage.spans) == MAX_SPANS
    assert lineage.standing(2) is lineage.standing(3) is Standing.UNREPORTED
    assert (lineage.standing(400), lineage.standing(399)) == (Standing.ROLLED_BACK, Standing.APPLIED)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"at":1,"spans":[[1,2,"x"]]}', '{"at":1,"spans":[1]}', "7"])
def test_what_is_no_lineage_is_refused(text: str) -> None:
    with pytest.raises(ContractViolation):
        decode_lineage(text)
