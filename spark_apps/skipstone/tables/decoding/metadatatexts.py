"""The JSON of a metadata file, of which a commit makes only what is new: a table may have hundreds of snapshots.

What there is more of with each commit stands at the end of the text, each entry as it was made once. Entries are known
by identity: metadata that was made of other metadata shares them, and nobody changes one. Must not touch files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import IcebergBaseModel

#: What there is more of in metadata with each commit, as PyIceberg and as JSON name it.
_GROWING: Final = {"snapshots": "snapshots", "snapshot_log": "snapshot-log", "metadata_log": "metadata-log"}
#: About the bytes of an entry beside its text.
_ENTRY_BYTES: Final = 200


class _Entry(NamedTuple):
    """An entry of a list that grows, its JSON, and what parsing that gives: itself, when it came of a file."""

    part: IcebergBaseModel
    text: str
    read: IcebergBaseModel


@dataclass(frozen=True)
class KnownTexts:
    """Entries that were written before, by the id of what a reader has in hand: it is held, so its id is its own."""

    entries: Mapping[int, _Entry] = field(default_factory=dict)
    nbytes: int = 0


@dataclass(frozen=True)
class MetadataText:
    """The JSON of some metadata: ``rest``, all that does not grow, and of each list that grows the entries' own."""

    rest: str
    grown: Mapping[str, Sequence[_Entry]]

    def text(self) -> str:
        """The whole."""
        lists = (f'"{_GROWING[name]}":[{",".join([one.text for one in some])}]' for name, some in self.grown.items())
        return f"{self.rest[:-1]},{','.join(lists)}}}"

    def known(self) -> KnownTexts:
        """For the next text of metadata that is made of this one, as it is read."""
        entries = [one if one.part is one.read else one._replace(part=one.read) for one in self._entries()]
        nbytes = sum([len(one.text) for one in entries]) + len(entries) * _ENTRY_BYTES
        return KnownTexts({id(one.read): one for one in entries}, nbytes)

    def read(self) -> TableMetadata:
        """What parsing the text gives, with entries of the base as they are there.

        Raises PyIceberg's ValidationError when nobody could read it.
        """
        grown: dict[str, Any] = {name: [one.read for one in some] for name, some in self.grown.items()}
        return TableMetadataUtil.parse_raw(self.rest).model_copy(update=grown)

    def _entries(self) -> Sequence[_Entry]:
        return [one for some in self.grown.values() for one in some]


def metadata_text(metadata: TableMetadata, base: TableMetadata, known: KnownTexts) -> MetadataText:
    """The JSON of ``metadata`` as PyIceberg writes it, but for the order of fields.

    ``base``: what it was made of, as it was read. Raises PyIceberg's ValidationError when nobody could read an entry.
    """
    rest = metadata.model_dump_json(exclude={*_GROWING})
    grown = {}
    for name in _GROWING:
        parts = getattr(metadata, name)
        found = [known.entries.get(id(part)) for part in parts]
        was_read = {id(one) for one in getattr(base, name)}
        grown[name] = [
            entry if entry is not None and entry.part is part else _made(part, was_read=id(part) in was_read)
            for part, entry in zip(parts, found, strict=True)
        ]
    return MetadataText(rest, grown)


def _made(part: IcebergBaseModel, *, was_read: bool) -> _Entry:
    text = part.model_dump_json()
    return _Entry(part, text, part if was_read and _comes_back(part) else type(part).model_validate_json(text))


def _comes_back(part: IcebergBaseModel) -> bool:
    """Whether JSON tells ``part`` as it is: it leaves out what is null, and the default counts instead."""
    return None not in (getattr(part, name) for name in _with_default(type(part)))


@cache
def _with_default(kind: type[IcebergBaseModel]) -> tuple[str, ...]:
    """The fields of ``kind`` that are something when they are left out."""
    fields = kind.model_fields.items()
    return tuple(name for name, field in fields if not field.is_required() and field.default is not None)
