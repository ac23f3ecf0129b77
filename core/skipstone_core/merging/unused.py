"""Which columns of a source nothing uses: what looks like a slip is refused, what may be meant is told.

Called by loads and merges when they know the names on both sides. Names are exact; likeness never makes a column feed
another, it only says what was probably meant. Must not read files.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from skipstone_core.contract.formats import ChangeFormat, Envelope
from skipstone_core.contract.reports import UnusedColumn
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeTask
from skipstone_core.errors import BadData
from skipstone_core.language.paths import split_path
from skipstone_core.merging.clauses import BoundClause
from skipstone_core.merging.merges import KEPT_COLUMN, MergePlan
from skipstone_core.reasons import Reason

#: How many columns reports list, and how many of them a sentence names.
MAX_UNUSED, MAX_NAMED = 20, 5
_MAX_NAME = 100
#: Characters that separate the fields of text files; a name that holds one is probably several names.
_DELIMITERS = (";", "\t", "|", ",")
#: Categories of characters that are not seen, wherever they stand: marks of byte order and direction, soft hyphens.
_UNSEEN = ("Cc", "Cf")


@dataclass(frozen=True)
class SourceNames:
    """The names of the columns of some files with the same ones, of which ``example`` is one.

    ``instead``: pairs of like names of which some record has a value under the first and lacks the second.
    """

    example: str
    names: tuple[str, ...]
    instead: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names on both sides. ``fed``: the source column of each table column that has one; ``used``: names of the
    source that are used otherwise, such as in conditions. ``by_name``: whether columns feed those of equal name.
    """

    files: Sequence[SourceNames]
    table: Sequence[str]
    fed: Mapping[str, str]
    used: frozenset[str] = field(default_factory=frozenset)
    by_name: bool = True

    @property
    def unused(self) -> tuple[str, ...]:
        """The columns of the source that nothing uses, in its order."""
        return tuple(name for name in self._all if name not in self._taken)

    @property
    def unfed(self) -> tuple[str, ...]:
        """The columns of the table that no column of any file feeds, where columns feed by name."""
        known = frozenset(self._all)
        return tuple(name for name in self.table if self.by_name and self.fed.get(name) not in known)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The unused columns that the table does not have."""
        return tuple(name for name in self.unused if name not in self.table)

    @property
    def _all(self) -> Sequence[str]:
        return list(dict.fromkeys(name for file in self.files for name in file.names))

    @property
    def _taken(self) -> frozenset[str]:
        return frozenset(self.fed.values()) | self.used


def plain_name(name: str) -> str:
    """``name`` without what people do not see or do not mean: case, blanks around it, forms of accents."""
    seen = (character for character in name if unicodedata.category(character) not in _UNSEEN)
    return unicodedata.normalize("NFC", "".join(seen).strip()).casefold()


def refuse_twins(names: Names) -> None:
    """Raise BadData (SOURCE_COLUMNS_UNUSED) when a table column would take one of a file but for case or blanks."""
    for file in names.files:
        _refuse_twins(names, file)


def refuse_mixed(names: Names) -> None:
    """Raise BadData (SOURCE_COLUMNS_UNUSED) when nothing uses what some records have in place of a column used."""
    for file in names.files:
        for unused, used in sorted(file.instead):
            if used in names._taken and unused not in names._taken:
                raise _unused(
                    f"some records of '{file.example}' have {_shown(unused)} and not {_shown(used)}, and names are "
                    "exact: write one of the two names in all records",
                    "spec.source.paths",
                )


def require_used(names: Names) -> None:
    """Raise BadData (SOURCE_COLUMNS_UNUSED) when no column of a file is used."""
    for file in names.files:
        if file.names and not names._taken.intersection(file.names):
            raise _unused(
                f"'{file.example}' has {listed(file.names)}, and none of them feeds a column of the table, which has "
                f"{listed(names.table)}: {_envelope_remedy(file.names) or _mapping_remedy(names, file)}",
                "spec.source.mapping",
            )


def require_delimiter(files: Iterable[SourceNames], delimiter: str, known: Set[str]) -> None:
    """Raise BadData (SOURCE_COLUMNS_UNUSED) for files of Csv whose header another delimiter cuts into columns.

    ``known``: names of the table and the mapping; a header with one of them is cut as it should be.
    """
    meant = {plain_name(name) for name in known}
    for file in files:
        _refuse_hint(file, known)
        for name in () if known & set(file.names) else file.names:
            for other in _DELIMITERS:
                parts = name.split(other)
                is_meant = len(file.names) == 1 or any(plain_name(part.strip("\"'")) in meant for part in parts)
                if other != delimiter and len(parts) > 1 and is_meant:
                    raise _unused(
                        f"'{file.example}' has the column {_shown(name)} in its header, which {_shown(other)} would "
                        f"cut into {len(parts)} columns: set source.options.delimiter to {_shown(other)}",
                        "spec.source.options.delimiter",
                    )


def _refuse_hint(file: SourceNames, known: Set[str]) -> None:
    """Spreadsheets write a line such as ``sep=;`` before the header."""
    if len(file.names) <= 2 and any(name.startswith("sep=") for name in set(file.names) - known):
        raise _unused(
            f"'{file.example}' begins with a line that tells spreadsheets the delimiter ('sep='), in the place of its "
            "header: remove that line",
            "spec.source.paths",
        )


def merge_names(task: MergeTask, plan: MergePlan, files: Sequence[SourceNames]) -> Names:
    """What a merge uses of a source with ``files``.

    Raises BadData (SOURCE_COLUMNS_UNUSED) for names that a clause would take but for case or blanks, also in some
    records only, for a clause that would write no column but keys, and for a change feed whose rows nothing uses.
    """
    used = {split_path(name)[0] for name in plan.source_columns} | set(plan.source_columns) - {KEPT_COLUMN}
    feeding = [
        bound
        for clauses, bounds in (
            (task.when_matched, plan.when_matched),
            (task.when_not_matched, plan.when_not_matched),
        )
        for clause, bound in zip(clauses, bounds, strict=True)
        if _feeds_by_name(clause)
    ]
    keys = {key.target: key.source for key in plan.keys}
    fed = keys | {column: source for bound in feeding for column, source in bound.values.items()}
    names = Names(files=files, table=plan.target_columns, fed=fed, used=frozenset(used), by_name=bool(feeding))
    for bound in feeding:
        taken = Names(files=files, table=plan.target_columns, fed={**keys, **bound.values, **_otherwise(bound)})
        for file in files:
            _refuse_twins(taken, file)
    refuse_mixed(names)
    _refuse_envelopes(names)
    _refuse_void(plan, names, feeding)
    return names


def refuse_unknown(names: Names) -> None:
    """Raise BadData (SOURCE_COLUMNS_UNUSED) for columns that the table does not have and nothing uses."""
    if names.unknown:
        raise unknown_columns(names.unknown, can_be_mapped=True)


def unknown_columns(names: Sequence[str], *, can_be_mapped: bool) -> BadData:
    """The error for columns that ``unknownColumns`` Refuse does not allow."""
    mapped = ", name them in source.mapping" if can_be_mapped else ""
    return _unused(
        f"the table does not have {listed(names)} of the source: add them to the table{mapped}, or set "
        "source.unknownColumns to Ignore or Add",
        "spec.source.unknownColumns",
    )


def void_feed(unknown: Sequence[str], others: Sequence[str]) -> BadData:
    """The error for a change feed that has keys and columns that the table does not have, and no other."""
    return _unused(
        f"the changes have {listed(unknown)} beside their keys, and the table has {listed(others)}, of which no change "
        "has a value: name only files of this table in source.paths, or give the columns the names of the feed",
        "spec.source.paths",
    )


def describe_unused(columns: Sequence[UnusedColumn], total: int) -> str:
    """A sentence about columns of a source that nothing used; empty when there are none."""
    if not columns:
        return ""
    shown = [f"{_shown(column.name)}{_counted(column.rows)}" for column in columns[:MAX_NAMED]]
    return f"Nothing uses {_columns(total)} of the source: {_joined(shown, total)}."


def describe_unfed(names: Sequence[str]) -> str:
    """A sentence about columns of a table that a source does not have; empty when there are none."""
    if not names:
        return ""
    shown = [_shown(name) for name in names[:MAX_NAMED]]
    return f"The source has no value for {_columns(len(names))} of the table: {_joined(shown, len(names))}."


def describe_gone(names: Sequence[str]) -> str:
    """A sentence about columns that a feed had and has no more; empty when there are none."""
    if not names:
        return ""
    shown = [_shown(name) for name in names[:MAX_NAMED]]
    return (
        f"The feed no longer has {_columns(len(names))} of the table that earlier jobs merged: "
        f"{_joined(shown, len(names))}. It may be that the source table dropped or renamed them: rows keep their "
        "values there, and new rows have null."
    )


def describe_skipped(count: int) -> str:
    """A sentence about messages of a feed that tell of no row of the table; empty when there are none."""
    if not count:
        return ""
    messages = "1 message that tells" if count == 1 else f"{count} messages that tell"
    return (
        f"The feed has {messages} of no row of the table (heartbeats, boundaries of transactions and other tables, for "
        "example), and they do nothing."
    )


def describe_unmatched(deletes: int, updates: int) -> str:
    """A sentence about deletes and updates of a merge that found no row; empty when there are none."""
    counted = [(deletes, "delete"), (updates, "update")]
    shown = [f"{count} {name}{'s' if count > 1 else ''}" for count, name in counted if count]
    return f"{' and '.join(shown)} found no row in the table." if shown else ""


def describe_defaulted(columns: Sequence[UnusedColumn]) -> str:
    """A sentence about columns in which a change feed may have a default in place of null; empty without any."""
    if not columns:
        return ""
    shown = [f"{_shown(column.name)} ({_rows(column.rows or 0)})" for column in columns[:MAX_NAMED]]
    return (
        f"The feed has the default of {_columns(len(columns))} that may be null: {_joined(shown, len(columns))}. Kafka "
        "Connect writes the default for null as well unless value.converter.replace.null.with.default and, for flat "
        "messages, transforms.unwrap.replace.null.with.default are false: set them, and merge a new snapshot."
    )


def listed(names: Sequence[str]) -> str:
    """The first of ``names`` as a sentence lists them, with their number."""
    return f"{_columns(len(names))} ({_joined([_shown(name) for name in names[:MAX_NAMED]], len(names))})"


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _joined(shown: Sequence[str], total: int) -> str:
    more = f" and {total - len(shown)} more" if total > len(shown) else ""
    return ", ".join(shown) + more


def _counted(rows: int | None) -> str:
    if rows is None:
        return ""
    return " (no row has a value)" if not rows else f" ({rows} row{'s have' if rows > 1 else ' has'} a value)"


def _shown(name: str) -> str:
    """In quotes, so that blanks show; names may be long, and hold what no message should."""
    text = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"
    return f"'{text}'" if text.isprintable() else json.dumps(text)


def _feeds_by_name(clause: MergeClause) -> bool:
    return clause.action is not MergeAction.DELETE and not clause.values


def _otherwise(bound: BoundClause) -> Mapping[str, str]:
    """Columns that a clause gives a value which no source column is."""
    return dict.fromkeys((*bound.literals, *bound.expressions), "")


def _refuse_twins(names: Names, file: SourceNames) -> None:
    here = set(file.names)
    taken = frozenset(names.fed.values())
    by_name = (name for name in reversed(names.table) if names.fed.get(name, name) == name and name not in here)
    unfed = {plain_name(name): name for name in by_name}
    for source in file.names:
        column = unfed.get(plain_name(source))
        if column is not None and source not in taken:
            raise _unused(
                f"'{file.example}' has the column {_shown(source)} and the table has {_shown(column)}, and names are "
                f"exact: add {_pair(column, source)} to source.mapping, or rename one of the two",
                "spec.source.mapping",
            )


def _pair(column: str, source: str) -> str:
    column, source = (json.dumps(name, ensure_ascii=not name.isprintable()) for name in (column, source))
    return f"{{column: {column}, from: {source}}}"


def _mapping_remedy(names: Names, file: SourceNames) -> str:
    pair = _pair(names.table[0], file.names[0]) if names.table else "them"
    return f"name what feeds which column in source.mapping, such as {pair}"


class _Known(NamedTuple):
    """A change feed that files are: of which tool, and its ``column`` that nobody may leave unused."""

    tool: ChangeFormat
    envelope: Envelope
    column: str


def _envelope(names: Collection[str]) -> _Known | None:
    """The change feed that has these columns: of several that may, the one of which the most are known."""
    columns = set(names)
    known = [
        (tool, candidate) for tool in ChangeFormat for candidate in tool.feed.envelopes if _fits(candidate, columns)
    ]
    if not known:
        return None
    tool, envelope = max(known, key=lambda pair: len(pair[1].all_of) + len(pair[1].one_of))
    return _Known(tool, envelope, next(name for name in envelope.rows if name in columns))


def _fits(envelope: Envelope, names: Set[str]) -> bool:
    if envelope.is_whole and names != envelope.all_of:
        return False
    return envelope.all_of <= names and all(names & some for some in envelope.one_of)


def _envelope_remedy(names: Collection[str]) -> str:
    known = _envelope(names)
    if known is None:
        return ""
    return f"this is a change feed of {known.tool}, so merge it by a MergeJob with source.changeFormat {known.tool}"


def _refuse_envelopes(names: Names) -> None:
    unused = set(names.unused)
    for file in names.files:
        known = _envelope(file.names)
        if known is not None and known.column in unused:
            raise _unused(
                f"'{file.example}' is a change feed of {known.tool}, and nothing uses its column "
                f"{_shown(known.column)}, which {known.envelope.holds}: set source.changeFormat to {known.tool}, or "
                "name the column in the clauses",
                "spec.source.changeFormat",
            )


def _refuse_void(plan: MergePlan, names: Names, feeding: Sequence[BoundClause]) -> None:
    """A clause that takes columns by name and finds none writes rows without changing them, or inserts nulls."""
    keys = {key.target for key in plan.keys} | ({plan.stored_sequence.target} if plan.stored_sequence else set())
    others = [name for name in plan.target_columns if name not in keys]
    for bound in feeding:
        if others and names.unused and not (bound.assigned - keys):
            raise _unused(
                f"the source has {listed(names.unused)} beside its keys, and none of them feeds a column of the table, "
                f"which has {listed(others)}: name what feeds which column in source.mapping, such as "
                f"{_pair(others[0], names.unused[0])}, or in set and values",
                "spec.source.mapping",
            )


def _unused(message: str, where: str) -> BadData:
    return BadData(Reason.SOURCE_COLUMNS_UNUSED, message, field=where)
