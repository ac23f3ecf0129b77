"""Archived transactions: what is written is found again, what is damaged is noticed, and files stay few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.errors import ContractViolation
from skipstone_core.history.archives import (
    BATCH_RECORDS,
    KEPT_RECORDS,
    MAX_MERGED_RECORDS,
    RADIX,
    ArchiveContent,
    ArchivedRecord,
    ArchiveFile,
    decode_content,
    decode_files,
    decode_section,
    encode_content,
    encode_files,
    find_rows,
    plan_merge,
    plan_moves,
    read_slot,
    section_of,
    slot_place,
    slot_size,
)

records = st.lists(
    st.builds(ArchivedRecord, st.text(max_size=20), st.sampled_from(["", "d1", "d2"]), st.text(max_size=40)),
    max_size=100,
    unique_by=lambda record: record.txn,
)


def found(file: ArchiveFile, data: bytes, kind: str, name: str) -> list[str]:
    """What a lookup finds that reads one section."""
    place = slot_place(section_of(name, file.sections))
    start, length, checksum = read_slot(data[place : place + slot_size()])
    rows = decode_section(data[start : start + length], checksum, name)
    return sorted(row[3] if kind == "t" else row[2] for row in find_rows(rows, kind, name))


@given(records, st.sets(st.integers(0, 2**40)))
def test_what_was_archived_is_found(given_records: list[ArchivedRecord], partial: set[int]) -> None:
    content = ArchiveContent(records=tuple(given_records), partial=tuple(sorted(partial)))
    file, data = encode_content(content)
    read = decode_content(file, data)
    assert (sorted(read.records), read.partial) == (sorted(content.records), content.partial)
    for record in given_records:
        assert found(file, data, "t", record.txn) == [record.text]
    for digest in ("d1", "d2"):
        assert found(file, data, "d", digest) == sorted(r.txn for r in given_records if r.digest == digest)
    assert decode_files(encode_files([file])) == (file,)


def test_a_byte_that_changed_is_noticed_wherever_it_is() -> None:
    file, data = encode_content(ArchiveContent(records=(ArchivedRecord("t", "d", "x" * 50),), partial=(7,)))
    for place in range(len(data)):
        with pytest.raises(ContractViolation):
            decode_content(file, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(ContractViolation):
        read_slot(data[:3])
    with pytest.raises(ContractViolation):
        found(file, bytes(len(data)), "t", "other")


def test_files_stay_few_and_each_record_is_written_few_times() -> None:
    files: tuple[ArchiveFile, ...] = ()
    written = most = 0
    for number in range(4096):
        merged = plan_merge(files, BATCH_RECORDS)
        count = BATCH_RECORDS + sum(file.records for file in merged)
        new = ArchiveFile(digest=str(number), records=count, sections=1, size=0)
        files = (new, *(file for file in files if file not in merged))
        written, most = written + count, max(most, len(files))
    assert sum(file.records for file in files) == 4096 * BATCH_RECORDS
    assert most <= (RADIX - 1) * 7
    assert written <= 4096 * BATCH_RECORDS * 7
    assert len(encode_files(files)) < 4096


def test_the_largest_files_merge_no_more() -> None:
    large = ArchiveFile(digest="a", records=MAX_MERGED_RECORDS // 3, sections=1, size=0)
    small = ArchiveFile(digest="b", records=BATCH_RECORDS, sections=1, size=0)
    assert plan_merge((large,) * 6, MAX_MERGED_RECORDS // 3) == ()
    assert plan_merge((small,) * 3 + (large,) * 6, BATCH_RECORDS) == (small,) * 3


def test_records_move_in_batches_and_the_newest_stay() -> None:
    full = {f"{n:04}": (n, 0) for n in range(KEPT_RECORDS + BATCH_RECORDS - 1)}
    assert plan_moves(full) == ()
    moved = plan_moves({**full, "9999": (9999, 0)})
    assert moved == tuple(f"{n:04}" for n in range(BATCH_RECORDS + 1))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"digest":1}]', "7"])
def test_what_is_no_list_of_files_is_refused(text: str) -> None:
    with pytest.raises(ContractViolation):
        decode_files(text)
