"""The types of indexes: what each is for, and which parameters of a spec it takes.

Used by the operator for the fields and rules of a SecondaryIndex, and by the data plane for what an index of a type
has. Data only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from skipstone_core.coded import Coded

MIN_BUCKETS, MAX_BUCKETS = 2, 1024


@dataclass(frozen=True, kw_only=True)
class IndexParameter:
    """A number that every index of one type has, and no other index.

    ``name``: of the field of a spec, and of IndexParameters. ``means``: what the number is, as the object of "set".
    ``says``: the description of the field.
    """

    name: str
    means: str
    says: str
    minimum: int
    maximum: int


@dataclass(frozen=True, kw_only=True)
class IndexTraits:
    """What is true of a type.

    ``says``: its purpose, as a sentence without its subject. ``is_bucketed``: whether entries are divided into buckets
    by their keys, so that tables are joined without a shuffle.
    """

    says: str
    parameters: tuple[IndexParameter, ...] = ()
    is_bucketed: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The names of the parameters."""
        return frozenset(parameter.name for parameter in self.parameters)


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
            parameters=(
                IndexParameter(
                    name="buckets",
                    means="how many buckets its rows are divided into",
                    says="The number of buckets of a Covering index. Tables that are joined need the same number.",
                    minimum=MIN_BUCKETS,
                    maximum=MAX_BUCKETS,
                ),
            ),
            is_bucketed=True,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class IndexParameters:
    """The parameters of an index by their names; None: its type does not take it."""

    buckets: int | None = None

    @property
    def given(self) -> Mapping[str, int]:
        """Those that the type takes."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def type(self) -> IndexType:
        """The type of the index."""
        return find_type(self.given)


NO_PARAMETERS = IndexParameters()


def find_type(names: Collection[str]) -> IndexType:
    """Return the type of an index with parameters of these ``names``, by which requests and index tables tell it.

    Names that no type takes are those of another version, whose definitions do not fit: Lookup.
    """
    return next((kind for kind in IndexType if kind.traits.names == {*names}), IndexType.LOOKUP)
