"""The JSON of a metadata file, of which a commit makes only what is new: a table may have hundreds of snapshots.

What there is more of with each commit stands at the end of the text, each entry as it was made once. Entries are known
by identity: metadata that was made of other metadata shares them, and nobody changes one. Must not touch files.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import IcebergBaseModel

#: What there is more of in metadata with each commit, as PyIceberg and as JSON name it.
_GROWING: Final = {"snapshots": "snapshots", "snapshot_log": "snapshot-log", "metadata_log": "metadata-log"}
#: About the bytes of an entry beside its text.
_ENTRY_BYTES: Final = 200


@dataclass(frozen=True)
class _Entries:
    """Entries of a list that grows, as they are read, and the JSON of each."""

    parts: Sequence[IcebergBaseModel] = ()
    texts: Sequence[str] = ()


@dataclass(frozen=True)
class KnownTexts:
    """Entries that were written before, by the name of their list. They are held, so that no others take their place.

    ``nbytes``: about what they take in memory.
    """

    entries: Mapping[str, _Entries] = field(default_factory=dict)
    nbytes: int = 0


@dataclass(frozen=True)
class MetadataText:
    """The JSON of some metadata: ``rest``, all that does not grow, and of each list that grows the entries' own."""

    rest: str
    grown: Mapping[str, _Entries]

    def text(self) -> str:
        """The whole."""
        lists = (f'"{_GROWING[name]}":[{",".join(some.texts)}]' for name, some in self.grown.items())
        return f"{self.rest[:-1]},{','.join(lists)}}}"

    def known(self) -> KnownTexts:
        """For the next text, of metadata that is made of this one as it is read."""
        entries = {name: _lasting(some) for name, some in self.grown.items()}
        nbytes = sum(sum(map(len, some.texts)) + _ENTRY_BYTES * len(some.texts) for some in entries.values())
        return KnownTexts(entries, nbytes)

    def read(self) -> TableMetadata:
        """What parsing the text gives, with entries of the base as they are there.

        Raises PyIceberg's ValidationError when nobody could read it.
        """
        grown: dict[str, Any] = {name: list(some.parts) for name, some in self.grown.items()}
        return TableMetadataUtil.parse_raw(self.rest).model_copy(update=grown)


def metadata_text(metadata: TableMetadata, base: TableMetadata, known: KnownTexts) -> MetadataText:
    """The JSON of ``metadata`` as PyIceberg writes it, but for the order of fields.

    ``base``: what it was made of, as it was read. Raises PyIceberg's ValidationError when nobody could read an entry.
    """
    rest = metadata.model_dump_json(exclude={*_GROWING})
    grown = {
        name: _entries(getattr(metadata, name), getattr(base, name), known.entries.get(name, _Entries()))
        for name in _GROWING
    }
    return MetadataText(rest, grown)


def _entries(parts: Sequence[IcebergBaseModel], base: Sequence[IcebergBaseModel], known: _Entries) -> _Entries:
    """``parts`` as they are read, and their texts. Most commits add at the end and take away at the beginning."""
    start = next((number for number, part in enumerate(known.parts) if parts and part is parts[0]), len(known.parts))
    run = known.parts[start : start + len(parts)]
    if all(map(operator.is_, run, parts)):
        more = _made(parts[len(run) :], base)
        return _Entries([*run, *more.parts], [*known.texts[start : start + len(run)], *more.texts])
    texts = {id(part): text for part, text in zip(known.parts, known.texts, strict=True)}
    made = iter(_pairs(_made([part for part in parts if id(part) not in texts], base)))
    pairs = [(part, texts[id(part)]) if id(part) in texts else next(made) for part in parts]
    return _Entries([part for part, _ in pairs], [text for _, text in pairs])


def _lasting(entries: _Entries) -> _Entries:
    """Those whose text is the same when what was read of it is written again."""
    defaults = _with_default(type(entries.parts[0])) if entries.parts else frozenset()
    if not defaults or all(defaults <= part.model_fields_set for part in entries.parts):
        return entries
    lasting = [(part, text) for part, text in _pairs(entries) if defaults <= part.model_fields_set]
    return _Entries([part for part, _ in lasting], [text for _, text in lasting])


def _pairs(entries: _Entries) -> list[tuple[IcebergBaseModel, str]]:
    return list(zip(entries.parts, entries.texts, strict=True))


def _made(parts: Sequence[IcebergBaseModel], base: Sequence[IcebergBaseModel]) -> _Entries:
    """Those of ``base`` came of a file, and are read as they are when JSON can tell them."""
    read = {id(part) for part in base} if parts else set()
    texts = [part.model_dump_json() for part in parts]
    return _Entries(
        [
            part if id(part) in read and _comes_back(part) else _read(type(part), text)
            for part, text in zip(parts, texts, strict=True)
        ],
        texts,
    )


def _read(kind: type[IcebergBaseModel], text: str) -> IcebergBaseModel:
    try:
        return kind.model_validate_json(text)
    except PydanticValidationError as error:
        raise ValidationError(error) from error


def _comes_back(part: IcebergBaseModel) -> bool:
    """Return whether JSON tells ``part`` as it is: it leaves out what is null, and the default counts instead.

    What was read without such a field has the default, and the field is written from then on.
    """
    defaults = _with_default(type(part))
    return defaults <= part.model_fields_set and None not in (getattr(part, name) for name in defaults)


@cache
def _with_default(kind: type[IcebergBaseModel]) -> frozenset[str]:
    """The fields of ``kind`` that are something when they are left out."""
    fields = kind.model_fields.items()
    return frozenset(name for name, field in fields if not field.is_required() and field.default is not None)
