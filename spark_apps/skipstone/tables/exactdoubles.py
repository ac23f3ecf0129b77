"""Mends PyIceberg: its compiled Avro decoder reads doubles with the precision of floats.

Partition values are read that way, and written back when a commit rewrites a manifest: 0.1 became another number.
Called when the package ``skipstone.tables`` is imported. Does nothing once PyIceberg is right.
"""

from __future__ import annotations

from pyiceberg.avro import STRUCT_DOUBLE
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.reader import DoubleReader

_INEXACT = 0.1


def _read(_: DoubleReader, decoder: BinaryDecoder) -> float:
    return float(STRUCT_DOUBLE.unpack(decoder.read(STRUCT_DOUBLE.size))[0])


def read_doubles_exactly() -> None:
    """Make PyIceberg read all eight bytes of a double."""
    if new_decoder(STRUCT_DOUBLE.pack(_INEXACT)).read_double() != _INEXACT:
        DoubleReader.read = _read  # type: ignore[method-assign, assignment]
