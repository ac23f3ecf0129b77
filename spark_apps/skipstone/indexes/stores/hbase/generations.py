"""Generations of entries as cover rows name them, and which files each of them is of.

A generation is named by who writes it, at random, before it writes: cover rows that name it are committed after all of
its pages are written, so what no cover row names counts for nothing. Must not do I/O.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, fields

import numpy as np
import pyarrow as pa

from skipstone.indexes.stores.hbase.pages import CELL_NUMBER_BYTES, Int64s

_ID_BYTES, _PART_BYTES = 8, 8


@dataclass(frozen=True)
class Generation:
    """What one commit entered, or what a merge made of several. ``id``: 16 hexadecimal digits, time first.

    ``parts``: numbers of the parts that it was written in, each of which has a cell in every page. ``rows``: of its
    files; ``nbytes``: of its cells.
    """

    id: str
    level: int
    parts: tuple[int, ...]
    rows: int
    nbytes: int

    @property
    def pages(self) -> int:
        """How many pages it has."""
        return 1 << self.level

    @property
    def cells(self) -> tuple[bytes, ...]:
        """The first bytes of the names of its cells in each page."""
        return tuple(cell_name(self.id, part) for part in self.parts)

    @property
    def page_bytes(self) -> int:
        """What a page has, on an average."""
        return self.nbytes // self.pages


def new_id(now_seconds: float) -> str:
    """An id that no generation has."""
    return int(now_seconds).to_bytes(4, "big").hex() + secrets.token_hex(_ID_BYTES - 4)


def new_part() -> int:
    """The number of a part that no other part has, nor another attempt of the same task.

    Attempts differ when only one of them could read a file, and an attempt that is given up may write after the one
    that counts: under one name its cells would hide entries, with a checksum that is right.
    """
    return secrets.randbits(8 * _PART_BYTES)


def seconds_of(generation_id: str) -> int:
    """When a generation was begun, in seconds since 1970."""
    return int(generation_id[:8], 16)


def cell_name(generation_id: str, part: int) -> bytes:
    """What the names of the cells of a part begin with."""
    return bytes.fromhex(generation_id) + part.to_bytes(_PART_BYTES, "big")


def is_cell(name: bytes) -> bool:
    """Return whether a name can be that of a cell of a page: others may have put cells of their own into its row."""
    return len(name) == _ID_BYTES + _PART_BYTES + CELL_NUMBER_BYTES


def id_of_cell(name: bytes) -> str:
    """The generation of a cell."""
    return name[:_ID_BYTES].hex()


def encode_generation(generation: Generation) -> str:
    """As cover rows name it."""
    return json.dumps(asdict(generation), separators=(",", ":"))


def decode_generation(text: str) -> Generation:
    """Read ``encode_generation`` back. Raises ValueError, KeyError or TypeError for anything else."""
    given = json.loads(text)
    known = {part.name: given[part.name] for part in fields(Generation)}  # another version may say more
    return Generation(**{**known, "parts": tuple(int(part) for part in given["parts"])})


@dataclass(frozen=True)
class Held:
    """A generation that cover rows name, and the file ids of those rows."""

    generation: Generation
    file_ids: Int64s


def held_generations(covers: pa.Table) -> tuple[Held, ...]:
    """The generations of cover rows, in the order in which they come first. Raises as ``decode_generation``."""
    coded = covers["generation"].combine_chunks().dictionary_encode()
    numbers, file_ids = coded.indices.to_numpy(), covers["file_id"].to_numpy().astype(np.int64)
    return tuple(
        Held(decode_generation(text), file_ids[numbers == number])
        for number, text in enumerate(coded.dictionary.to_pylist())
    )
