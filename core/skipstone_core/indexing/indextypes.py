"""The types of indexes: what each is for, and which parameters of a spec it takes.

Used by the operator for the fields and rules of a SecondaryIndex, and by the data plane for what an index of a type
has. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone_core.coded import Coded


@dataclass(frozen=True, kw_only=True)
class IndexTraits:
    """What is true of a type.

    ``says``: its purpose, as a sentence without its subject. ``parameters``: the fields of a spec that an index of the
    type must have and no other index may have, each with the meaning of its value. ``is_bucketed``: whether entries
    are divided into buckets by their keys, so that tables are joined without a shuffle.
    """

    says: str
    parameters: tuple[tuple[str, str], ...] = ()
    is_bucketed: bool = False


class IndexType(Coded):
    """The index types with an engine. ``traits``: what is true of each."""

    traits: IndexTraits

    def __init__(self, _name: str, traits: IndexTraits) -> None:
        self.traits = traits

    LOOKUP = ("Lookup", IndexTraits(says="finds rows by value"))
    COVERING = (
        "Covering",
        IndexTraits(
            says="divides rows into buckets by the indexed columns, so that tables are joined by them without a "
            "shuffle",
            parameters=(("buckets", "how many buckets its rows are divided into"),),
            is_bucketed=True,
        ),
    )


def find_type(*, buckets: int) -> IndexType:
    """Return the type that an index has by its parameters, which requests and index tables name in its place."""
    return IndexType.COVERING if buckets else IndexType.LOOKUP
