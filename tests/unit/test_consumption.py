"""The chain of records of consumed files: nothing is lost, and neither reading nor writing grows with the chain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.errors import ContractViolation
from skipstone_core.history.consumption import (
    NAME_BYTES,
    RADIX,
    STATE_BYTES,
    ConsumptionRecord,
    RecordPointer,
    consumed_property,
    covered_span,
    decode_pointer,
    decode_record,
    encode_pointer,
    encode_record,
    entry,
    split_entries,
)
from skipstone_core.ids import CONSUMED_PROPERTY_PREFIX

pointers = st.builds(
    RecordPointer,
    digest=st.text("0123456789abcdef", min_size=64, max_size=64),
    number=st.integers(1, 2**40),
    snapshot_id=st.integers(0, 2**63 - 1).map(str),
    sequence_number=st.integers(0, 2**40),
    files=st.integers(0, 2**40),
)


@given(pointers)
def test_a_pointer_is_small_and_read_back_as_it_was_written(pointer: RecordPointer) -> None:
    text = encode_pointer(pointer)
    assert decode_pointer(text) == pointer
    assert len(text) <= 256


@given(st.none() | pointers, st.lists(st.tuples(st.text(), st.integers(0), st.integers(0)), max_size=5))
def test_a_record_is_read_back_as_it_was_written(
    pointer: RecordPointer | None, files: list[tuple[str, int, int]]
) -> None:
    entries = b"".join(entry(*file) for file in files)
    record = ConsumptionRecord(table_uuid="u", consumer="c", previous=pointer, rest=pointer, entries=entries)
    assert decode_record(encode_record(record)) == record
    assert [name + state for name, state in split_entries(entries)] == [entry(*file) for file in files]


@pytest.mark.parametrize("content", [b"", b"{}\n", b'{"version":3}\n', b"[]\n", b'{"version":1}\n', b"\xff\n"])
def test_what_is_no_record_is_refused(content: bytes) -> None:
    with pytest.raises(ContractViolation):
        decode_record(content)
    with pytest.raises(ContractViolation):
        decode_pointer(content.decode(errors="replace"))


def test_a_cut_record_is_refused() -> None:
    whole = encode_record(ConsumptionRecord(table_uuid="u", consumer="c", entries=entry("a", 1, 2)))
    with pytest.raises(ContractViolation):
        decode_record(whole[:-1])


@given(st.text(), st.integers(0), st.integers(0), st.integers(0))
def test_size_and_time_change_the_state_of_an_entry_and_never_its_name(
    path: str, size: int, one: int, two: int
) -> None:
    first, second = entry(path, size, one), entry(path, size, two)
    assert first[:NAME_BYTES] == second[:NAME_BYTES]
    assert (first[NAME_BYTES:] == second[NAME_BYTES:]) == (one == two)
    assert len(first) == NAME_BYTES + STATE_BYTES


def test_consumers_have_properties_of_their_own() -> None:
    names = {consumed_property(f"MergeSchedule ns/{number}") for number in range(1000)}
    assert len(names) == 1000
    assert all(name.startswith(CONSUMED_PROPERTY_PREFIX) and len(name) < 64 for name in names)


def test_spans_hold_every_record_once_in_few_steps() -> None:
    most = 0
    for number in range(1, 3 * RADIX**3):
        held, steps, at = 0, 0, number
        while at > 0:
            held += covered_span(at)
            at -= covered_span(at)
            steps += 1
        assert (held, at) == (number, 0)
        most = max(most, steps)
    assert most <= (RADIX - 1) * 3 + 3


def test_what_all_records_hold_together_grows_by_one_level_for_every_sixteen_fold() -> None:
    count = RADIX**3
    assert sum(covered_span(number) for number in range(1, count + 1)) <= count * 4
