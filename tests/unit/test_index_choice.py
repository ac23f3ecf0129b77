"""Which indexes are asked, in which order: the rule, and that one index more never adds files to merges or queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.typedef import Identifier
from skipstone.indexes.asking import probes, sampling
from skipstone.indexes.found import FoundIndex, IndexHeads, IndexProblem, find_indexes
from skipstone.query import ReadOptions, plan_read
from skipstone.runs.merging.prune import PruneSite, prune_files
from skipstone.tables.filesets import FileSet, read_file_set
from skipstone_core.indexing.choice import Offer, plan_next
from skipstone_core.indexing.use import SMALL_BYTES, SMALL_FILES, NotUsed, ReadCost, is_worthwhile

from tests.spark.index_bed import Lake, index_on
from tests.unit.test_funnel_stages import source

MIB = 1024 * 1024
FILES = 12
COSTS = st.builds(ReadCost, st.integers(0, 400), st.integers(0, 400 * MIB))
SMALL = st.builds(ReadCost, st.integers(0, SMALL_FILES), st.integers(0, SMALL_BYTES))


# --- the rule ---


def test_the_index_that_saves_most_less_its_cost_comes_first() -> None:
    one_file = Offer(ReadCost(1, 9 * MIB), ReadCost(1, 1000), columns=2)
    six_files = Offer(ReadCost(6, 54 * MIB), ReadCost(2, 2000))
    costly = Offer(ReadCost(6, 54 * MIB), ReadCost(4, 20 * MIB))
    assert plan_next([one_file, costly, six_files]) == 2
    assert plan_next([one_file, costly]) == 1
    too_costly = Offer(ReadCost(6, 54 * MIB), ReadCost(20, 30 * MIB))
    nothing_left = Offer(ReadCost(), ReadCost())
    assert plan_next([too_costly, nothing_left]) is None
    assert plan_next([]) is None


def test_of_equal_gains_the_one_with_more_columns_comes_first_then_the_first() -> None:
    alike = [Offer(ReadCost(6, MIB), ReadCost(1, 10), columns) for columns in (1, 2, 2)]
    assert plan_next(alike) == 1


@dataclass(frozen=True)
class Modeled:
    """An index of a table of FILES files of one MiB: which it covers, in which of these it has hits, and its cost."""

    covered: frozenset[int]
    hit: frozenset[int]
    cost: ReadCost


def asked(indexes: Sequence[Modeled]) -> tuple[frozenset[int], ReadCost]:
    """Ask as the rule says: the files that are left, and what reading the indexes cost."""
    left, spent, waiting = frozenset(range(FILES)), ReadCost(), list(indexes)
    while (place := plan_next([Offer(cost_of(one.covered & left), one.cost) for one in waiting])) is not None:
        one = waiting.pop(place)
        left, spent = left - (one.covered - one.hit), spent + one.cost
    return left, spent


def cost_of(files: frozenset[int]) -> ReadCost:
    return ReadCost(len(files), len(files) * MIB)


def modeled(costs: st.SearchStrategy[ReadCost]) -> st.SearchStrategy[list[Modeled]]:
    some = st.frozensets(st.integers(0, FILES - 1))
    return st.lists(st.builds(Modeled, some, some, costs), min_size=1, max_size=5)


@given(indexes=modeled(SMALL))
def test_one_small_index_more_never_adds_a_file(indexes: list[Modeled]) -> None:
    assert asked(indexes)[0] <= asked(indexes[1:])[0]


@given(indexes=modeled(COSTS))
def test_one_index_more_costs_no_more_than_reading_it_beside_twice_what_was_read_before(
    indexes: list[Modeled],
) -> None:
    """An index is turned away only when half of what it could save is less than what it costs."""
    (left, spent), (left_before, spent_before) = asked(indexes), asked(indexes[1:])
    before = cost_of(left_before).weight + spent_before.weight
    assert cost_of(left).weight + spent.weight <= 2 * before + sum(one.cost.weight for one in indexes[:1])


@given(indexes=modeled(COSTS))
def test_no_index_is_asked_that_does_not_pay_by_itself(indexes: list[Modeled]) -> None:
    paying = [one for one in indexes if is_worthwhile(one.cost, cost_of(one.covered))]
    assert asked(indexes) == asked(paying)


# --- merges and queries on one table, with every choice of its indexes ---

ROWS = 200
INDEXES = {
    "all by k": (index_on("k", name="k"), None),
    "three by n": (index_on("n", name="n"), 3),
    "one by both": (index_on("k", "n", name="kn"), 1),
    "all by v": (index_on("v", name="v"), None),
    "all by flag": (index_on("flag", name="flag"), None),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Twelve files. Keys of k are spread over all of them, those of n over four each, and flag is everywhere."""
    made = Lake(tmp_path_factory.mktemp("choice"))
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("flag", pa.bool_()), ("v", pa.int64())])
    table = made.create(schema, properties={"write.parquet.row-group-limit": "100"})
    for file in range(FILES):
        k = np.arange(ROWS) * FILES + (file + np.arange(ROWS)) % FILES
        n = (np.arange(ROWS) * 7 + file // 3) % 40 * 3 + file % 3
        table.append(pa.table({"k": k, "n": n, "flag": k % 2 == 0, "v": k}, schema=schema))
    for index, segments in INDEXES.values():
        made.reindex(index, max_segments=segments)
    yield made
    made.catalog.close()


@dataclass(frozen=True)
class Only:
    """Finds the indexes of some names only."""

    names: frozenset[str]

    def __call__(
        self,
        catalog: Catalog,
        table: Identifier,
        files: FileSet,
        namespace: str | None = None,
        heads: IndexHeads | None = None,
    ) -> tuple[tuple[FoundIndex, ...], tuple[IndexProblem, ...]]:
        found, problems = find_indexes(catalog, table, files, namespace, heads)
        return tuple(index for index in found if f"_{index.name.split('_si_')[1]}".startswith(self.prefixes)), problems

    @property
    def prefixes(self) -> tuple[str, ...]:
        return tuple(f"_{INDEXES[name][0].name}_" for name in self.names)


SUBSETS = [frozenset(some) for size in range(len(INDEXES) + 1) for some in combinations(INDEXES, size)]


def assert_more_indexes_never_add_files(files_by_indexes: dict[frozenset[str], frozenset[int]]) -> None:
    for names, files in files_by_indexes.items():
        for more in INDEXES:
            assert files_by_indexes[names | {more}] <= files, (names, more)


CONDITIONS = [
    "k = 1201",
    "k = 1201 and flag = true",
    "k in (8, 1201, 2399) and n in (4, 5)",
    "k < 900 and n = 4",
    "k >= 0 and n = 7",
    "n = 4 and flag = true",
    "(k = 1201 or n = 4) and flag = true",
    "(k = 1201 or n = 4) and (n = 5 or k < 40)",
    "(k = 1201 and n = 4) or (k = 9 and v = 9)",
    "flag = true and ((k = 1201 and n = 4) or (k = 9 and v = 9))",
]
BY_POSITION, BY_GROUP = ReadOptions(), ReadOptions(by_position=False)
WHOLE_FILES = ReadOptions(by_position=False, whole_files=True)
#: What is read, and after how many hits a look-up asks itself whether to go on.
READERS = [
    (BY_POSITION, 64),
    (BY_GROUP, probes.FIRST_CHECK),
    (WHOLE_FILES, 64),
    (BY_GROUP, 64),
    (BY_POSITION, probes.FIRST_CHECK),
]


@pytest.mark.parametrize(
    ("condition", "options", "first_check"),
    [(condition, *reader) for condition, reader in zip(CONDITIONS, cycle(READERS))],
)
def test_a_query_reads_no_file_more_with_an_index_more(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, condition: str, options: ReadOptions, first_check: int
) -> None:
    monkeypatch.setattr(probes, "FIRST_CHECK", first_check)
    monkeypatch.setattr(sampling, "FIRST_LOOK", first_check)
    found = {}
    for names in SUBSETS:
        monkeypatch.setattr("skipstone.query.advice.find_indexes", Only(names))
        found[names] = frozenset(plan_read(lake.table(), condition, options).ordinals)
    assert_more_indexes_never_add_files(found)
    assert found[SUBSETS[-1]] < found[SUBSETS[0]]


@pytest.mark.parametrize(
    ("keys", "fewer"),
    [({"k": [1201, 9]}, 2), ({"k": [1201], "n": [4]}, 1), ({"n": [4, 10]}, 10), ({"flag": [True], "n": [4]}, 10)],
)
def test_a_merge_has_no_candidate_more_with_an_index_more(
    lake: Lake, keys: dict[str, list[object]], fewer: int
) -> None:
    changes = source(lake, keys)
    table = lake.table()
    files = read_file_set(table)
    found = {}
    for names in SUBSETS:
        with mock.patch("skipstone.runs.merging.prune.find_indexes", Only(names)):
            pruned = prune_files(PruneSite(), changes, table, files)
        found[names] = frozenset(pruned.candidates.files.tolist())
    assert_more_indexes_never_add_files(found)
    assert len(found[SUBSETS[-1]]) <= fewer < len(found[SUBSETS[0]])


def test_the_funnel_tells_what_each_index_did(lake: Lake) -> None:
    table = lake.table()
    changes = source(lake, {"k": [1201], "n": [4]})
    with mock.patch("skipstone.runs.merging.prune.find_indexes", Only(frozenset(INDEXES))):
        stage = prune_files(PruneSite(), changes, table, read_file_set(table)).funnel[-1]
    assert (stage.files_in, stage.files_out, stage.left_out) == (FILES, 1, None)
    did, *rest = stage.message.split("; ")
    assert did.startswith("index t__si_k_")
    assert f": {FILES} files to 1, reading " in did
    assert len(rest) == 2
    assert all("it covers none of 1 candidate files" in one for one in rest)


def test_an_index_of_one_file_does_not_answer_in_the_place_of_one_of_all(lake: Lake) -> None:
    """Reading it is cheapest, and it would leave eleven files to be read."""
    lake.reindex(index_on("k", "flag", name="answers"))
    plan = plan_read(lake.table(), "k between 100 and 500 and flag = true", columns=["k", "flag"])
    assert plan.answer is not None
    assert len(plan.answer.ordinals) == FILES
    lake.reindex(index_on("k", "flag", "n", name="first"), max_segments=1)
    again = plan_read(lake.table(), "k between 100 and 500 and flag = true", columns=["k", "flag"])
    assert again.answer is not None
    assert len(again.answer.ordinals) == FILES


def test_explain_says_of_each_index_whether_it_was_used(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone.query.advice.find_indexes", Only(frozenset(INDEXES)))
    plan = plan_read(lake.table(), "k = 1201 and n = 4 and flag = true")
    codes = {use.name.split("_")[3]: use.code for use in plan.indexes}
    assert codes == {
        "k": None,
        "n": NotUsed.NO_GAIN,
        "kn": NotUsed.NO_GAIN,
        "v": NotUsed.LEADING_COLUMN_NOT_BOUND,
        "flag": None,
    }
    assert "the others leave no file it covers" in plan.text()
