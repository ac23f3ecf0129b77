"""Doubles in Avro files, read exactly: PyIceberg's compiled decoder reads them with the precision of floats.

Partition values are read that way, and written back when a commit rewrites a manifest: 0.1 became another number.
Other users of PyIceberg in the process, as in a notebook, see no change unless the process commits. Does nothing once
PyIceberg is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyiceberg.avro import STRUCT_DOUBLE
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.reader import DoubleReader

_INEXACT = 0.1
#: Whether this thread reads for us.
_reads_exactly: ContextVar[bool] = ContextVar("reads_exactly", default=False)


def _exactly(_: DoubleReader, decoder: BinaryDecoder) -> float:
    return float(STRUCT_DOUBLE.unpack(decoder.read(STRUCT_DOUBLE.size))[0])


def _as_asked(reader: DoubleReader, decoder: BinaryDecoder) -> float:
    return _exactly(reader, decoder) if _reads_exactly.get() else decoder.read_double()


def _is_inexact() -> bool:
    return bool(new_decoder(STRUCT_DOUBLE.pack(_INEXACT)).read_double() != _INEXACT)


def read_doubles_exactly() -> None:
    """Make all of this process read all eight bytes of a double; a process that commits has to.

    PyIceberg reads the manifests that a commit rewrites in threads of its own.
    """
    if _is_inexact():
        DoubleReader.read = _exactly  # type: ignore[method-assign, assignment]


@contextmanager
def exact_doubles() -> Iterator[None]:
    """Within the block, this thread reads all eight bytes of a double."""
    if DoubleReader.read is not _exactly and _is_inexact():
        DoubleReader.read = _as_asked  # type: ignore[method-assign, assignment]
    before = _reads_exactly.set(True)
    try:
        yield
    finally:
        _reads_exactly.reset(before)
