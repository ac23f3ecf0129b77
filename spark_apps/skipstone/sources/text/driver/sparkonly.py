"""Small Csv and Json sources that Spark has to read instead of the driver: a closed list of reasons.

Raised by the other modules of this room, before the first row or at the row that shows it; nothing is committed then.
"""

from __future__ import annotations

from enum import StrEnum


class SparkOnly(StrEnum):
    """Why Spark reads a small source. ``docs/guide/loading.md`` lists these sentences."""

    DIALECT = "a delimiter or quote is not ASCII, or multiLine is combined with an escape that is not the quote"
    PATTERN = "dateFormat or timestampFormat has elements other than yyyy, M, d, H, m, s, S in the usual order"
    TYPE = "a column is a list, a map, a struct, or of another type that is not read from text"
    JSON = (
        "a record is not an object of strict Json, is nested deep, has a name twice, an empty name, an empty "
        "object or names that differ by case or blanks only"
    )
    SIZE = "the texts of Json take more than 128 MiB decompressed"
    PRESENT = "records of Json may lack columns: a clause of the merge has present"
    COLUMNS = "a file has more than 20,480 columns, or the name of a compressed file has an extension in capitals"
    LINES = "a line is of blanks and control characters, has a quote out of place, or is longer than 16 MiB"
    ROWS = "a row has more or fewer fields than the header"
    TEXT = "bytes are not valid in the encoding, or a text has the character U+FFFD or U+F8FF"
    VALUE = "a value does not fit its column, or is not in the usual form of its type"
    ZONE = (
        "timeZone is not UTC or of the form area/city, or a local time is before 1970, after 2037 or in the hour that "
        "a change to daylight saving time skips"
    )
    DAMAGED = "a file cannot be read or decompressed"


class SparkNeeded(Exception):
    """Spark must read the source; ``why`` is the reason."""

    def __init__(self, why: SparkOnly) -> None:
        super().__init__(why.value)
        self.why = why
