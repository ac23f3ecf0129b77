"""What of small Csv and Json sources Spark reads though the driver reads the others: a closed list.

Raised by the other modules of this room, before the first row or at the row that shows it; nothing is committed then.
"""

from __future__ import annotations

from enum import StrEnum


class SparkOnly(StrEnum):
    """Why Spark reads a small source. ``docs/guide/loading.md`` lists these sentences."""

    DIALECT = "a delimiter or quote is not ASCII, or multiLine stands beside an escape that is not the quote"
    PATTERN = "dateFormat or timestampFormat has more than yyyy, M, d, H, m, s, S in their places and separators"
    TYPE = "a column is a list, a map, a struct, or of another type that text does not carry"
    JSON = (
        "a record is not an object of strict Json, is nested deep, has a name twice, an empty one, an object without "
        "names or names that differ by case or blanks only"
    )
    SIZE = "the texts of Json take more than 128 MiB unpacked"
    PRESENT = "records of Json may lack columns: a clause of the merge has present"
    COLUMNS = "a file has more than 20,480 columns, or a name of a packed file ends in capitals"
    LINES = "a line is of blanks and control characters, has a quote out of place, or is longer than 16 MiB"
    ROWS = "a row has more or fewer fields than the header"
    TEXT = "bytes are not valid in the encoding, or a text has the character U+FFFD or U+F8FF"
    VALUE = "a value does not fit its column, or is not in the usual form of its type"
    ZONE = (
        "timeZone is not UTC or of the form area/city, or a local time is before 1970, after 2037 or in the hour that "
        "a clock change skips"
    )
    DAMAGED = "a file cannot be read or unpacked"


class SparkNeeded(Exception):
    """Spark must read the source; ``why`` says what the driver met."""

    def __init__(self, why: SparkOnly) -> None:
        super().__init__(why.value)
        self.why = why
