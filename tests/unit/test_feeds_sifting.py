"""Changes that are left out: by which place a change is known when it comes again, and what waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from skipstone.kernels.partial import pack_bits
from skipstone.sources.feeds.rejecting.sifting import PLACE_COLUMN, Holding, Sifted, sift_changes
from skipstone.sources.feeds.shapes import (
    FAULT_COLUMN,
    LOG_COLUMN,
    ORDER_COLUMN,
    ORIGIN_COLUMN,
    OTHER_COLUMN,
    Change,
    Mark,
)
from skipstone_core.keys import KeyFamily, KeyType
from skipstone_core.merging.feeds import MISSING_COLUMN, OP_COLUMN, UPSERT
from skipstone_core.merging.holds import HeldRow, place_of
from skipstone_core.merging.merges import KEPT_COLUMN, BoundKey

KEYS = (BoundKey(target="id", source="id", type=KeyType(KeyFamily.INTEGER)),)
COLUMNS = ("id", "a", "b")
FILE = "feeds/orders/7.json"
MARK = Mark("shop.orders", "shop", "log", b"\x01")


@dataclass(frozen=True)
class Told:
    """One change of row 1. ``row``: which row of the message in ``line``; ``sets``: columns besides the key."""

    line: int
    row: int
    sets: str
    fault: str | None = None


def sift(*told: Told, rows: dict[str, HeldRow] | None = None) -> Sifted:
    """These changes of one file, of a tool whose log does not tell changes apart."""
    changes = [Change(UPSERT, {}, MARK, one.line, row=one.row) for one in told]
    places = [MARK.order + (0).to_bytes(4, "big") + change.place for change in changes]
    kept = np.array([[name != "id" and name not in one.sets for name in COLUMNS] for one in told])
    columns: dict[str, Any] = {
        "id": pa.array([1] * len(told), pa.int64()),
        "a": pa.nulls(len(told), pa.string()),
        "b": pa.nulls(len(told), pa.string()),
        OP_COLUMN: pa.array([UPSERT] * len(told)),
        ORDER_COLUMN: pa.array(places, pa.binary()),
        PLACE_COLUMN: pa.array(places, pa.binary()),
        ORIGIN_COLUMN: pa.array([MARK.origin] * len(told)),
        LOG_COLUMN: pa.array([MARK.log] * len(told)),
        FAULT_COLUMN: pa.array([one.fault for one in told], pa.string()),
        OTHER_COLUMN: pa.nulls(len(told), pa.string()),
        KEPT_COLUMN: pack_bits(kept),
        MISSING_COLUMN: pack_bits(np.zeros_like(kept)),
    }
    holding = Holding(is_exact=lambda *_: False, files=(FILE,), rows=rows or {})
    return sift_changes(pa.table(columns), np.zeros(len(told), np.int64), KEYS, holding)


def test_each_row_of_a_message_waits_by_itself() -> None:
    left = sift(Told(1, 0, "a", fault="it is not a number"), Told(1, 1, "b"))
    assert [change.line for change in left.rejected] == [1, 1]
    (held,) = left.rows.values()
    assert len(held.missing) == 2
    assert held.lost == {"id", "a", "b"}
    # This one sets nothing of what the second row of the message would have set.
    later = sift(Told(2, 0, "a"), rows=dict(left.rows))
    assert later.changes.num_rows == 0
    assert [change.line for change in later.rejected] == [2]
    both = sift(Told(2, 0, "ab"), rows=dict(left.rows))
    assert both.changes.num_rows == 1


def test_a_row_that_an_earlier_release_left_out_is_known_when_it_comes_again() -> None:
    missing = place_of("shop log", f"{MARK.order.hex()} 7.json {1:012d}")
    (held,) = sift(Told(1, 0, "a", fault="it is not a number")).rows.values()
    assert held.missing == (missing,)
    again = sift(Told(1, 0, "a"), rows={"[1]": held})
    assert (again.changes.num_rows, again.rejected) == (1, ())
