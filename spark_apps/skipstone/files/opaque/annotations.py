"""What a Parquet footer says of columns of opaque types, which Arrow does not write: that a group is a variant.

Used by the writers of data files. Source of the formats: parquet.thrift of apache/parquet-format.
Must not know rows, partitions or commits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pyiceberg.schema import Schema

from skipstone.compat.lineage.opaque import GEOMETRY, VARIANT, Opaque, opaque_fields
from skipstone.files.footers import TAIL
from skipstone.tables.parquet.thrift import Byte, CompactReader, Int32, Raw, Struct, encode_struct, with_fields

#: Fields of a footer and of an element of its schema: the elements; the number of children, the field id, the type.
_ELEMENTS, _CHILDREN, _FIELD_ID, _LOGICAL_TYPE = 2, 5, 9, 10
#: Members of the union of logical types.
_VARIANT, _GEOMETRY, _GEOGRAPHY = 16, 17, 18
#: The version of the encoding of variants, of which there is one.
_VARIANT_VERSION: Final = 1
#: How edges are interpolated, by Parquet's numbers.
_ALGORITHMS: Final = ("spherical", "vincenty", "thomas", "andoyer", "karney")
_DEFAULT_CRS: Final = "OGC:CRS84"
#: The children of a variant that is not shredded.
_WHOLE: Final = 2
_PARAMETERS = re.compile(r"\w+\s*(?:\((.*)\))?\s*", re.DOTALL)


def logical_type(kind: Opaque) -> Raw:
    """Return Parquet's logical type of values of ``kind``."""
    if kind.word == VARIANT:
        return encode_struct({_VARIANT: encode_struct({1: Byte(_VARIANT_VERSION)})})
    match = _PARAMETERS.fullmatch(str(kind))
    parameters = [parameter.strip().strip("'\"") for parameter in (match[1] or "").split(",")] if match else []
    crs = (parameters[0] if parameters else "") or _DEFAULT_CRS
    if kind.word == GEOMETRY:
        return encode_struct({_GEOMETRY: encode_struct({1: crs.encode()})})
    algorithm = parameters[1].lower() if len(parameters) > 1 else _ALGORITHMS[0]
    return encode_struct({_GEOGRAPHY: encode_struct({1: crs.encode(), 2: Int32(_ALGORITHMS.index(algorithm))})})


def annotated(footer: Struct, schema: Schema) -> Raw:
    """The ``footer`` of a file that Arrow wrote with the columns of ``schema``, with the types that it left out."""
    kinds = stored_types(schema)
    if not kinds:
        return Raw(footer.raw)
    return with_fields(footer.raw, {_ELEMENTS: [_annotated(element, kinds) for element in footer[_ELEMENTS]]})


def ending(schema: Schema, before: Callable[[bytes, int], bytes] | None) -> Callable[[bytes, int], bytes] | None:
    """What makes of the end of a file, and of where it begins, the end with those types.

    ``before``: what is done to the end first. None: nothing is done to it.
    """
    return partial(_ended, schema, before) if stored_types(schema) else before


def stored_types(schema: Schema) -> Mapping[int, Opaque]:
    """The opaque types of ``schema`` that files have, by field id."""
    return {number: kind for number, kind in opaque_fields(schema) if kind.is_stored}


def is_shredded(elements: Sequence[Struct]) -> bool:
    """Return whether some variant in a column with these elements is in more parts than metadata and value."""
    return any(_VARIANT in element.get(_LOGICAL_TYPE, {}) and element.get(_CHILDREN) != _WHOLE for element in elements)


def _ended(schema: Schema, before: Callable[[bytes, int], bytes] | None, end: bytes, start: int) -> bytes:
    end = end if before is None else before(end, start)
    length, magic = TAIL.unpack(end[-TAIL.size :])
    footer = annotated(CompactReader(end[-TAIL.size - length : -TAIL.size]).struct(), schema)
    return end[: -TAIL.size - length] + footer + TAIL.pack(len(footer), magic)


def _annotated(element: Struct, kinds: Mapping[int, Opaque]) -> Raw:
    kind = kinds.get(element.get(_FIELD_ID, -1))
    return Raw(element.raw) if kind is None else with_fields(element.raw, {_LOGICAL_TYPE: logical_type(kind)})
