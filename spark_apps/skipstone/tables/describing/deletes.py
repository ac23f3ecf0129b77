"""Delete files as JSON, each once in an answer, and which of them apply to each data file.

Used by the description of scan tasks. A Puffin file holds several deletion vectors, so a delete is known by its path
and where it begins. Must not know how deletes are found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pyiceberg.manifest import DataFile

from skipstone.compat.pyiceberg import optional_value
from skipstone.compat.rowdelta import CONTENT_OFFSET, CONTENT_SIZE
from skipstone.tables.decoding.manifests import partition_tuple
from skipstone.tables.deletes import referenced_path
from skipstone.tables.describing.values import PartitionTexts
from skipstone.tables.filesets import FileSet

_CONTENT = ("data", "position-deletes", "equality-deletes")


#: The texts of the delete files of a file set, without their partitions, by the identity of the object: file sets are
#: kept, and make the same files into tasks again and again.
_bodies: WeakKeyDictionary[FileSet, dict[int, str]] = WeakKeyDictionary()


def bodies_of(files: FileSet) -> dict[int, str]:
    """Return the known texts of delete files of ``files``."""
    return _bodies.setdefault(files, {})


@dataclass
class NumberedDeletes:
    """The delete files that tasks refer to, as they come. ``partitions``: by spec; ``bodies``: see bodies_of."""

    partitions: Mapping[int, PartitionTexts]
    bodies: dict[int, str]
    texts: list[str] = field(default_factory=list)
    _numbers: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def number(self, file: DataFile) -> int:
        """The number of a delete file in the answer."""
        key = (file.file_path, optional_value(file, CONTENT_OFFSET))
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.texts)
            self.texts.append(self._described(file))
        return known

    def _described(self, file: DataFile) -> str:
        body = self.bodies.get(id(file))
        if body is None:
            body = self.bodies[id(file)] = _body(file)
        return f'{body},"partition":{self.partitions[file.spec_id].of(partition_tuple(file))}}}'


def _body(file: DataFile) -> str:
    """A delete file up to its partition."""
    members = {
        "spec-id": file.spec_id,
        "content": _CONTENT[int(file.content)],
        "file-path": file.file_path,
        "file-format": file.file_format.value.lower(),
        "file-size-in-bytes": file.file_size_in_bytes,
        "record-count": file.record_count,
        "key-metadata": None if file.key_metadata is None else file.key_metadata.hex().upper(),
        "split-offsets": file.split_offsets,
        "equality-ids": file.equality_ids,
        "sort-order-id": file.sort_order_id,
        "referenced-data-file": referenced_path(file),
        "content-offset": optional_value(file, CONTENT_OFFSET),
        "content-size-in-bytes": optional_value(file, CONTENT_SIZE),
    }
    text = json.dumps({name: value for name, value in members.items() if value is not None}, ensure_ascii=False)
    return text[:-1]
