"""The options of text sources, checked.

Called by the readers of Csv and Json. Must not start Spark: a wrong option is told before anything is launched.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass

from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import SourceSpec
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

#: Encodings that Spark reads, by Python's name for them. The wide ones cannot be cut into lines.
_ENCODINGS: Mapping[str, str] = {
    "utf-8": "UTF-8",
    "ascii": "US-ASCII",
    "iso8859-1": "ISO-8859-1",
    "utf-16": "UTF-16",
    "utf-16-be": "UTF-16BE",
    "utf-16-le": "UTF-16LE",
}
_CSV_ONLY = ("header", "delimiter", "quote", "escape")
_KNOWN = frozenset({*_CSV_ONLY, "encoding", "nullValue", "dateFormat", "timestampFormat", "multiLine"})
#: Letters of a Java date pattern that read a zone or an offset.
_ZONE_LETTERS = frozenset("VzOXxZ")
#: Digits of a second that timestamps have.
_MOST_FRACTION = 6


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How to read Csv or Json. ``quote`` empty: no quoting.

    Null are Json's null, Csv's empty fields without quotes and, when given, the text ``null_value``.

    ``escape`` equal to ``quote`` means that quotes are doubled inside quotes, as RFC 4180 has it.
    """

    header: bool = False
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    encoding: str = "UTF-8"
    null_value: str | None = None
    date_format: str | None = None
    timestamp_format: str | None = None
    multi_line: bool = False

    @property
    def timestamps_have_zone(self) -> bool:
        """Return whether ``timestamp_format`` reads an offset or a zone, so that the job's time zone is not needed."""
        return bool(_ZONE_LETTERS & set(_letters(self.timestamp_format)))


@dataclass(frozen=True, kw_only=True)
class TextForms:
    """How values are written: the options, and the zone of times without offset."""

    options: TextOptions
    time_zone: str


def _letters(pattern: str | None) -> str:
    """A pattern of dates without the text in it that is quoted."""
    return " ".join((pattern or "").split("'")[::2])


def text_options(source: SourceSpec) -> TextOptions:
    """The options of ``source``; raises BadSpec (INVALID_SPEC) naming the option."""
    given = source.options
    for name in given:
        if name not in _KNOWN:
            raise _wrong(name, f"is no option: use one of {', '.join(sorted(_KNOWN))}")
        if source.format is not SourceFormat.CSV and name in _CSV_ONLY:
            raise _wrong(name, "is for the format Csv only: remove it")
    quote = _one_character(given, "quote", '"', empty=True)
    options = TextOptions(
        header=_flag(given, "header"),
        delimiter=_one_character(given, "delimiter", ","),
        quote=quote,
        escape=_one_character(given, "escape", quote, empty=not quote),
        encoding=_encoding(given),
        null_value=given.get("nullValue") or None,
        date_format=given.get("dateFormat"),
        timestamp_format=given.get("timestampFormat"),
        multi_line=_flag(given, "multiLine"),
    )
    if source.format is SourceFormat.JSON and options.encoding != "UTF-8":
        raise _wrong("encoding", "is always UTF-8 for the format Json: write the file so and remove it")
    return _consistent(options)


def no_options(source: SourceSpec) -> None:
    """Raise BadSpec (INVALID_SPEC) when a typed format is given text options or types."""
    if source.options:
        raise _wrong(min(source.options), f"has no meaning for the format {source.format}: remove it")
    if source.columns:
        raise BadSpec(
            Reason.INVALID_SPEC, f"{source.format} files carry their own types: remove it", field="source.columns"
        )


def _consistent(options: TextOptions) -> TextOptions:
    if options.encoding.startswith("UTF-16") and not options.multi_line:
        raise _wrong("encoding", f"'{options.encoding}' needs the option multiLine: set it to true")
    if _ZONE_LETTERS & set(_letters(options.date_format)):
        raise _wrong("dateFormat", "reads an offset or a zone, which a date does not have: leave its letters out")
    if "S" * (_MOST_FRACTION + 1) in _letters(options.timestamp_format):
        message = (
            f"reads more than {_MOST_FRACTION} digits of a second, of which the others would be lost: write SSSSSS, "
        )
        raise _wrong("timestampFormat", f"{message}and zeros behind them as text, such as SSSSSS'000'")
    for name, character in (("quote", options.quote), ("escape", options.escape)):
        if options.delimiter == character:
            raise _wrong("delimiter", f"is the same character as the {name}: choose another")
        if character and character <= " ":
            raise _wrong(name, "cannot be a blank, a tab or a control character: choose another")
    return options


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in ("true", "false"):
        raise _wrong(name, f"'{given[name]}' is neither true nor false")
    return text == "true"


def _one_character(given: Mapping[str, str], name: str, default: str, *, empty: bool = False) -> str:
    text = {"\\t": "\t", "\\\\": "\\"}.get(given.get(name, default), given.get(name, default))
    if len(text) != 1 and not (empty and not text):
        raise _wrong(name, f"'{text}' is not one character")
    if text > "\uffff":
        raise _wrong(name, f"'{text}' is more than one character in UTF-16: choose another")
    if text in ("\n", "\r", "\0"):
        raise _wrong(name, "cannot be the end of a line: choose another character")
    return text


def _encoding(given: Mapping[str, str]) -> str:
    text = given.get("encoding", "UTF-8")
    try:
        return _ENCODINGS[codecs.lookup(text).name]
    except (LookupError, KeyError):
        raise _wrong("encoding", f"'{text}' is not read: use one of {', '.join(_ENCODINGS.values())}") from None


def _wrong(name: str, message: str) -> BadSpec:
    return BadSpec(Reason.INVALID_SPEC, message, field=f"source.options.{name}")
