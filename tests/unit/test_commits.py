"""The rules of transaction records: what is kept and how small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.codec import encode
from skipstone_core.errors import ContractViolation
from skipstone_core.history.commits import (
    MAX_RECORD_BYTES,
    UNREPORTED,
    Aborted,
    Absent,
    AlreadyCommitted,
    Conflicted,
    Outcome,
    Present,
    RolledBack,
    TxnRecord,
    TxnState,
    Unknown,
    Untold,
    decode_record,
    encode_record,
    find_outcome,
)
from skipstone_core.indexing.snapshots import DeleteKind, is_delete_newer
from skipstone_core.merging.merges import MergeCounts
from skipstone_core.reasons import Reason

RECORD = TxnRecord(time_ms=1, snapshot_id=7)

records = st.builds(
    TxnRecord,
    time_ms=st.integers(0, 2**53),
    snapshot_id=st.integers(0, 2**63 - 1),
    sequence_number=st.integers(0, 2**40),
    counts=st.dictionaries(st.sampled_from(["rowsLoaded", "rowsRejected", "segment"]), st.integers(1, 2**40)),
    rejected_path=st.none() | st.text(min_size=1, max_size=40),
    source_digest=st.none() | st.text("0123456789abcdef", min_size=64, max_size=64),
    is_empty=st.booleans(),
    is_aborted=st.booleans(),
)


@given(records)
def test_a_record_is_read_back_as_it_was_written(record: TxnRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(st.text(max_size=2000), st.dictionaries(st.text(min_size=1, max_size=20), st.integers(0, 0), max_size=50))
def test_a_record_never_takes_more_than_its_bytes(path: str, counts: dict[str, int]) -> None:
    record = TxnRecord(time_ms=1, rejected_path=path, counts=counts)
    assert len(encode_record(record).encode()) <= MAX_RECORD_BYTES


@pytest.mark.parametrize("most", [9, 999_999, 10**9 - 1, 2**40, 2**63 - 1])
def test_a_record_of_a_merge_of_any_size_is_kept(most: int) -> None:
    """A commit that cannot be remembered would fail, and so would every attempt after it."""
    counts = dict.fromkeys(encode(MergeCounts()), most)
    record = TxnRecord(
        time_ms=2**43, snapshot_id=2**63 - 1, sequence_number=2**40, counts=counts, source_digest="d" * 64
    )
    kept = decode_record(encode_record(record))
    assert (kept.source_digest, kept.snapshot_id) == ("d" * 64, 2**63 - 1)
    assert most > 2**40 or kept.counts["rowsDeleted"] == most


def test_a_rejected_path_too_long_to_keep_gives_way_to_the_counts() -> None:
    kept = decode_record(encode_record(TxnRecord(time_ms=1, rejected_path="p" * 600, counts={"rowsLoaded": 3})))
    assert kept == TxnRecord(time_ms=1, counts={"rowsLoaded": 3})


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        (Absent(), None),
        (Present(RECORD, 7), AlreadyCommitted(RECORD)),
        (RolledBack(RECORD), Reason.ROLLED_BACK),
        (Untold(RECORD), Unknown(UNREPORTED)),
        (Aborted(7), Reason.ABORTED),
    ],
    ids=["absent", "present", "rolled back", "untold", "aborted"],
)
def test_a_run_ends_by_what_the_table_knows_of_its_transaction(state: TxnState, ends: Outcome | Reason | None) -> None:
    outcome = find_outcome(state)
    assert (outcome.reason if isinstance(outcome, Conflicted) else outcome) == ends


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"t":"x"}', '{"t":1,"c":[]}', "7"])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ContractViolation):
        decode_record(text)


@pytest.mark.parametrize(
    ("kind", "data", "delete", "applies"),
    [
        (DeleteKind.POSITION, 3, 3, True),
        (DeleteKind.POSITION, 4, 3, False),
        (DeleteKind.EQUALITY, 3, 3, False),
        (DeleteKind.EQUALITY, 2, 3, True),
    ],
    ids=["position, same commit", "position, older", "equality, same commit", "equality, newer"],
)
def test_which_deletes_are_new_enough(kind: DeleteKind, data: int, delete: int, *, applies: bool) -> None:
    assert is_delete_newer(kind, data_sequence=data, delete_sequence=delete) is applies
