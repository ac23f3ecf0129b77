"""What messages have in the place of a value that the database did not log, because the change leaves it as it is.

Called by ``batches``. Debezium writes its placeholder (``unavailable.value.placeholder``) as text, bytes, whole
numbers, a UUID and a map, by the column's type. Source: Debezium's UnchangedToastedPlaceholder.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from propcache.api import cached_property
from pyiceberg.types import BinaryType, FixedType, IcebergType, StringType, UUIDType

from skipstone.sources.feeds.shapes import Raw

_DEFAULT = b"__debezium_unavailable_value"
#: Begins a placeholder that is told as hexadecimal octets.
_HEX = "hex:"


@dataclass(frozen=True)
class Placeholder:
    """One placeholder: its octets."""

    content: bytes = _DEFAULT

    def stands_in(self, value: Raw, kind: IcebergType) -> bool:
        """Return whether ``value`` stands for one of a column of type ``kind`` that is left out."""
        if isinstance(value, list | Mapping):
            return value in self._listed
        return value in self.plain(kind)

    def plain(self, kind: IcebergType) -> Sequence[Raw]:
        """Return what stands for such values, other than lists and maps."""
        if isinstance(kind, BinaryType | FixedType | StringType):  # text of bytes may be kept as text
            return (*self._plain, *self._encoded)
        return (*self._plain, self._uuid) if isinstance(kind, UUIDType) else self._plain

    @cached_property
    def forms(self) -> Sequence[Raw]:
        """All plain values, for columns whose type is not known."""
        return (*self._plain, *self._encoded, self._uuid)

    @cached_property
    def _text(self) -> str:
        return self.content.decode(errors="replace")

    @cached_property
    def _plain(self) -> Sequence[Raw]:
        return (self._text, self.content, f'{{"{self._text}":"{self._text}"}}')

    @cached_property
    def _encoded(self) -> Sequence[Raw]:
        return (
            base64.b64encode(self.content).decode(),
            base64.urlsafe_b64encode(self.content).decode(),
            self.content.hex(),
        )

    @cached_property
    def _uuid(self) -> str:
        return str(uuid.UUID(bytes=hashlib.md5(self.content, usedforsecurity=False).digest(), version=3))

    @cached_property
    def _listed(self) -> Sequence[Raw]:
        text = self._text
        return [[text], [self._encoded[0]], [self.content], [self._uuid], [*self.content], {text: text}]


def octets_of(setting: str) -> bytes:
    """Return the octets of a placeholder as ``unavailable.value.placeholder`` has it: text, or hex: and their digits.

    Raises ValueError when it has none.
    """
    content = bytes.fromhex(setting.removeprefix(_HEX)) if setting.startswith(_HEX) else setting.encode()
    if not content:
        raise ValueError(setting)
    return content
