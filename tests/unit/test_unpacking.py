"""Packed files come out whole, or an error says that something in them is not packed content."""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone.sources.text.unpacking import unpacked

PACKS: dict[str, Callable[[bytes], bytes]] = {"a.gz": gzip.compress, "a.BZ2": bz2.compress}


def read(name: str, content: bytes, size: int = -1) -> bytes:
    with unpacked(name, io.BytesIO(content)) as opened:
        return b"".join(iter(lambda: opened.read(size), b""))


@given(st.sampled_from(sorted(PACKS)), st.lists(st.binary(max_size=50) | st.just(b"long" * 100_000), max_size=4),
       st.integers(100, 100_000))  # fmt: skip
def test_members_are_read_one_behind_the_other(name: str, members: list[bytes], size: int) -> None:
    assert read(name, b"".join(map(PACKS[name], members)), size) == b"".join(members)


@pytest.mark.parametrize("name", PACKS)
@pytest.mark.parametrize("behind", [b"\0", b"\0" * 512, b"text", b"\n"])
def test_other_bytes_between_and_behind_members_are_told(name: str, behind: bytes) -> None:
    one = PACKS[name](b"one\n")
    for content in (one + behind, one + behind + one):
        with pytest.raises(OSError, match="other bytes than packed ones stand behind a packed part"):
            read(name, content)


@pytest.mark.parametrize("name", PACKS)
def test_a_member_that_is_cut_or_damaged_is_told(name: str) -> None:
    whole = PACKS[name](bytes(range(256)))
    for size in range(1, len(whole)):
        with pytest.raises(EOFError):
            read(name, PACKS[name](b"one") + whole[:size])
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    with pytest.raises(OSError):
        read(name, bytes(damaged))
