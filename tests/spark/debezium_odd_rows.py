"""Merges rows of odd values, and tells of each whether it arrived, was refused or is another value.

Used by the soak of Debezium.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fastavro
from skipstone_core.contract.feeds import Infinity, NonFinite
from skipstone_core.contract.requests import SourceSpec
from skipstone_core.errors import BadData

from tests.spark.debezium_odd import ODD, STREAMED, TABLE, Odd, schema
from tests.spark.debezium_settings import Setting
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.postgres_history import same

_PLACE = re.compile(r"^(?:spec\.source: )?'(?P<file>[^']+)', line (?P<line>\d+): (?P<rest>.*)$", re.DOTALL)
#: What declares a value of Iceberg for one that it does not have.
_DECLARED: Mapping[str, Mapping[str, Any]] = {
    "source.nonFinite": {"non_finite": NonFinite.NULL},
    "source.infinity": {"infinity": Infinity.NULL},
}


@dataclass(frozen=True)
class Outcome:
    """What became of ``odd`` in the snapshot or stream of a setting: it is right, or refused, or ``stored``.

    ``way_out``: what was done about the refusal, and worked.
    """

    odd: Odd
    origin: str
    sentence: str = ""
    way_out: str = ""
    stored: Any = None
    is_right: bool = False


def outcomes(bed: MergeBed, setting: Setting, folder: Path) -> Iterator[Outcome]:
    """Of all rows of TABLE below ``folder``."""
    bed.create(schema())
    files = sorted((folder / setting.engine.topic(TABLE)).glob("0*"))
    messages = [message for file in files for message in _messages(file)]
    refused: dict[int, tuple[str, str]] = {}
    source = SourceSpec(
        format=setting.format, paths=("",), change_format=setting.change_format, time_precision=setting.unit
    )
    left = list(range(len(messages)))
    while left:
        path = _written(bed, [messages[at] for at in left], files[0])
        try:
            _merge(bed, replace(source, paths=(path,)))
            break
        except BadData as error:
            place = _PLACE.match(str(error))
            assert place, error
            at = left.pop(int(place["line"]) - 1)
            path = _written(bed, [messages[at]], files[0])
            refused[at] = place["rest"], _way_out(bed, place["rest"], replace(source, paths=(path,)))
    rows = {row["id"]: row for row in bed.table().scan().to_arrow().to_pylist()}
    for at, message in enumerate(messages):
        number = _id(message)
        origin = "stream" if number >= STREAMED else "snapshot"
        odd = ODD[number - (STREAMED if number >= STREAMED else 1)]
        if at in refused:
            yield Outcome(odd, origin, *refused[at])
        else:
            found = rows[number][odd.column]
            is_right = odd.value is not None and same(found, odd.value, odd.kind)
            yield Outcome(odd, origin, stored=found, is_right=is_right)


def _way_out(bed: MergeBed, sentence: str, source: SourceSpec) -> str:
    for setting, fields in _DECLARED.items():
        if setting in sentence:
            _merge(bed, replace(source, **fields))
            return f"`{setting}`"
    return ""


def _merge(bed: MergeBed, source: SourceSpec) -> None:
    bed.merge(task_of("", ("id",), source=source, when_matched=(), when_not_matched=()))


def _messages(file: Path) -> list[Any]:
    """The messages of ``file`` but tombstones: lines, or records with their schema."""
    if file.suffix == ".json":
        return [line for line in file.read_text().splitlines() if line != "null"]
    with file.open("rb") as opened:
        reader = fastavro.reader(opened)
        return [(reader.writer_schema, record) for record in reader]


def _id(message: Any) -> int:
    if isinstance(message, tuple):
        row = message[1]
    else:
        row = json.loads(message)
        row = row["payload"] if set(row) == {"schema", "payload"} else row
    return int((row.get("after") or row)["id"])


def _written(bed: MergeBed, messages: list[Any], like: Path) -> str:
    """A file of ``messages`` as ``like`` is; its path relative to the root."""
    path = bed.root / "feeds" / f"{len(list((bed.root / 'feeds').glob('*')))}{like.suffix}"
    path.parent.mkdir(exist_ok=True)
    if like.suffix == ".json":
        path.write_text("".join(f"{line}\n" for line in messages))
    else:
        with path.open("wb") as opened:
            fastavro.writer(opened, messages[0][0], [record for _, record in messages])
    return f"feeds/{path.name}"


def is_known(outcome: Outcome, setting: Setting) -> bool:
    """Whether another value than the database's is one that ``Odd.known`` has."""
    try:
        known = outcome.odd.stored(setting.name, outcome.origin)
    except KeyError:
        return False
    return same(outcome.stored, known, outcome.odd.kind)
