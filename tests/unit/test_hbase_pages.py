"""Pages of entries in a key-value store: what is packed comes back, and what is lost is noticed."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone.indexes.keytests import AllTests, AnyTest, Points, Range, Test
from skipstone.indexes.stores.hbase.asking import bound_points
from skipstone.indexes.stores.hbase.generations import (
    Generation,
    decode_generation,
    encode_generation,
    id_of_cell,
    new_id,
    seconds_of,
)
from skipstone.indexes.stores.hbase.hashing import canonical_hashes, is_hashed_alike, stored_hashes
from skipstone.indexes.stores.hbase.pages import (
    ANYWHERE,
    CELL_BYTES,
    HASH_BITS,
    MAX_LEVEL,
    MAX_SAME,
    PAGE_ENTRIES,
    LostPage,
    PageEntries,
    cut_cells,
    distinct,
    in_order,
    join_cells,
    level_for,
    pack_pages,
    page_of,
    pages_of,
    row_key,
    unpack_pages,
)
from skipstone.kernels.canonical import canonical
from skipstone_core.keys import KeyFamily, KeyType

INDEX = bytes(range(16))
entry_lists = st.lists(
    st.tuples(
        st.integers(0, (1 << HASH_BITS) - 1) | st.sampled_from([0, 7, (1 << HASH_BITS) - 1]),
        st.integers(0, (1 << 31) - 1),
        st.integers(0, 1 << 20),
        st.integers(0, ANYWHERE - 1),
    ),
    max_size=50,
)


def entries_of(rows: list[tuple[int, int, int, int]]) -> PageEntries:
    columns = [*zip(*rows, strict=True)] or [(), (), (), ()]
    return PageEntries(np.array(columns[0], np.uint64), *(np.array(column, np.int64) for column in columns[1:]))


def rows_of(entries: PageEntries) -> list[tuple[int, ...]]:
    columns = (entries.hashes, entries.file_ids, entries.row_groups, entries.positions)
    return [*zip(*(column.tolist() for column in columns), strict=True)]


@given(entry_lists, st.integers(0, 3))
def test_entries_come_back_page_by_page(rows: list[tuple[int, int, int, int]], half_level: int) -> None:
    level = 2 * half_level
    pages = dict(pack_pages(in_order(entries_of(rows)), level, range(1 << level)))
    assert [*pages] == [*range(1 << level)]
    assert sorted(rows_of(unpack_pages([*pages.values()]))) == sorted(rows)
    for page, content in pages.items():
        assert set(page_of(unpack_pages([content]).hashes, level).tolist()) <= {page}


def test_a_key_of_many_rows_is_remembered_by_its_row_groups() -> None:
    many = [(9, 1, position // 100, position) for position in range(MAX_SAME + 1)]
    few = [(9, 2, 0, position) for position in range(MAX_SAME)]
    kept = rows_of(in_order(entries_of([*reversed(few), *many, (5, 1, 0, 3)])))
    assert kept[0] == (5, 1, 0, 3)
    assert kept[1:4] == [(9, 1, group, ANYWHERE) for group in range(3)]
    assert sorted(kept[4:]) == sorted(few)


@given(st.lists(st.integers(0, 50) | st.just((1 << HASH_BITS) - 1)))
def test_hashes_and_their_pages_are_counted_once(numbers: list[int]) -> None:
    hashes = np.array(numbers, np.uint64)
    assert distinct(hashes).tolist() == sorted({*numbers})
    assert pages_of(distinct(hashes), 44).tolist() == sorted({number >> 4 for number in numbers})


def test_levels_are_even_and_keep_pages_small() -> None:
    assert [level_for(rows) for rows in (0, PAGE_ENTRIES, PAGE_ENTRIES + 1, 10**7, 10**8)] == [0, 0, 2, 14, 18]
    assert level_for(1 << 60) == MAX_LEVEL


@pytest.mark.parametrize("level", [0, 2, 8, 14, 24])
def test_rows_of_pages_are_in_the_order_of_their_hashes(level: int) -> None:
    pages = sorted({0, (1 << level) // 3, (1 << level) - 1})
    keys = [row_key(INDEX, level, page) for page in pages]
    assert keys == sorted(keys)
    assert {key[1:17] for key in keys} == {INDEX}


@pytest.mark.parametrize("size", [0, 1, CELL_BYTES - 12, CELL_BYTES, 3 * CELL_BYTES])
def test_a_page_is_as_it_was_written_or_lost(size: int) -> None:
    content = bytes(np.random.default_rng(1).integers(0, 256, size, np.uint8))
    cells = dict(cut_cells(b"row", b"name", content))
    assert join_cells(b"row", b"name", {**cells, b"other\0\0": b"x"}) == content
    for name, value in cells.items():
        for damaged in (None, value[:-1], value[:-1] + bytes([value[-1] ^ 1]), b"", b"SKP2" + value[4:]):
            others = {other: kept for other, kept in cells.items() if other != name}
            with pytest.raises(LostPage):
                join_cells(b"row", b"name", others if damaged is None else {**others, name: damaged})
    with pytest.raises(LostPage):  # copied from another row
        join_cells(b"two", b"name", cells)


def test_a_generation_is_named_with_its_time_and_read_back() -> None:
    name = new_id(1_700_000_000.5)
    assert seconds_of(name) == 1_700_000_000
    assert name != new_id(1_700_000_000.5)
    generation = Generation(name, 4, (0, 65_536), 10, 1000)
    text = encode_generation(generation)
    assert decode_generation(text) == decode_generation(text.replace("{", '{"more":1,')) == generation
    assert [id_of_cell(cell) for cell in generation.cells] == [name, name]
    assert (generation.pages, generation.page_bytes) == (16, 62)


VALUES = {
    "long": (pa.array([1, -5, None, 1 << 62]), KeyType(KeyFamily.INTEGER)),
    "string": (pa.array(["", "a", None, "ä" * 40]), KeyType(KeyFamily.STRING)),
    "binary": (pa.array([b"", b"\0", None, b"x" * 99]), KeyType(KeyFamily.BINARY)),
    "boolean": (pa.array([True, False, None]), KeyType(KeyFamily.BOOLEAN)),
    "date": (pa.array([0, -1, None], pa.date32()), KeyType(KeyFamily.DATE)),
    "timestamptz": (pa.array([0, -1, None], pa.timestamp("us", tz="UTC")), KeyType(KeyFamily.TIMESTAMPTZ)),
    "decimal(2)": (
        pa.array([Decimal("1.25"), Decimal("-0.01"), None], pa.decimal128(38, 2)),
        KeyType(KeyFamily.DECIMAL, 2, 7),
    ),
}


@pytest.mark.parametrize("storage", VALUES)
def test_a_key_has_one_hash_when_it_is_entered_and_when_a_merge_asks(storage: str) -> None:
    stored, kind = VALUES[storage]
    hashes, are_keys = stored_hashes([stored], [storage])
    assert are_keys.tolist() == stored.is_valid().to_pylist()
    assert is_hashed_alike(storage, kind)
    asked = canonical_hashes([canonical(stored.drop_null(), kind)], [kind])
    assert asked.tolist() == hashes[are_keys].tolist()
    assert len({*asked.tolist()}) == len(asked)
    assert (asked >> np.uint64(HASH_BITS) == 0).all()


def test_hashes_of_several_columns_depend_on_their_order() -> None:
    one, two = pa.array([1, 2]), pa.array([2, 1])
    hashes, _ = stored_hashes([one, two], ["long", "long"])
    assert len({*hashes.tolist()}) == 2


def test_keys_of_other_types_are_not_hashed_alike() -> None:
    assert not is_hashed_alike("decimal(2)", KeyType(KeyFamily.DECIMAL, 3, 7))
    assert not is_hashed_alike("long", KeyType(KeyFamily.STRING))
    assert is_hashed_alike("decimal(2)", KeyType(KeyFamily.DECIMAL, 2, 36))


A, B = Points(1, pa.array([1, 2])), Points(2, pa.array(["x", "y", "z"]))
NO_POINTS: list[Test] = [
    A,
    Range(1, pa.scalar(0)),
    AnyTest((A, B)),
    AllTests((A, Range(2, pa.scalar("a")))),
    AllTests((Points(1, pa.array(range(2000))), Points(2, pa.array([str(n) for n in range(2000)])))),
]


def test_values_of_all_columns_are_points() -> None:
    points = bound_points(AllTests((A, B, Range(3, pa.scalar(1)))), [2, 1])
    assert points is not None
    pairs = zip(*(column.to_pylist() for column in points), strict=True)
    assert sorted(pairs) == sorted((text, number) for text in "xyz" for number in (1, 2))


@pytest.mark.parametrize("test", NO_POINTS, ids=range(len(NO_POINTS)))
def test_other_conditions_are_no_points(test: Test) -> None:
    assert bound_points(test, [1, 2]) is None
