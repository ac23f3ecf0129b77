"""Random texts of every type of column, as people and programs write them, and as nobody should.

Used by the tests of Csv and Json that the driver reads only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

TYPES: Mapping[str, IcebergType] = {
    "b": BooleanType(),
    "i": IntegerType(),
    "l": LongType(),
    "f": FloatType(),
    "g": DoubleType(),
    "m": DecimalType(9, 2),
    "n": DecimalType(38, 0),
    "o": DecimalType(38, 38),
    "d": DateType(),
    "t": TimestampType(),
    "z": TimestamptzType(),
    "c": TimeType(),
    "u": UUIDType(),
    "s": StringType(),
}
SCHEMA = Schema(*(NestedField(at, name, kind) for at, (name, kind) in enumerate(TYPES.items(), start=1)))
_BLANKS = ("", "", "", "", " ", "  ", "\t", "\u00a0")
_SIGNS = ("", "", "", "-", "+", "--")


def _digits(random: Random, most: int) -> str:
    return "".join(random.choice("0123456789") for _ in range(random.randint(0, most)))


def _integer(random: Random) -> str:
    limits = (2**31 - 1, 2**31, 2**63 - 1, 2**63, 0, 7)
    number = str(random.choice(limits)) if random.random() < 0.3 else _digits(random, random.choice((2, 5, 12, 21)))
    return random.choice(_SIGNS) + number


def _number(random: Random) -> str:
    text = random.choice(_SIGNS) + _digits(random, random.choice((1, 3, 8, 17, 39)))
    if random.random() < 0.6:
        text += "." + _digits(random, random.choice((1, 2, 3, 20, 40))) + "0" * random.randint(0, 3)
    if random.random() < 0.25:
        text += random.choice("eE") + random.choice(_SIGNS) + _digits(random, random.choice((1, 2, 3, 5)))
    return text


def _floating(random: Random) -> str:
    odd = ("NaN", "nan", "-NaN", "+NaN", "++inf", "Infinity", "-inf", "+INF", "inf", "1d", "1f", "0x1p3", "1e400",
           "1e-400", "1_0", "3.4028236e38", "3.4028235677973366e38", "1.17549435e-38", "4.9e-324",
           "2.2250738585072011e-308", "1e23", "8.41e21", "5e-324", "٣", "1e+5", "-0", "0e0",
           ".5", "5.", ".", "")  # fmt: skip
    return random.choice(odd) if random.random() < 0.3 else random.choice((_number(random), repr(random.random())))


def _pad(number: int, random: Random) -> str:
    return str(number) if random.random() < 0.1 else f"{number:02d}"


def _date(random: Random) -> str:
    years = (0, 1, 1582, 1900, 1969, 1970, 1999, 2000, 2013, 2024, 2037, 2038, 9999)
    year = random.choice(years) if random.random() < 0.5 else random.randint(1970, 2037)
    months, days = random.choice(((12, 28), (12, 31), (13, 32)))
    year_text = f"{year:04d}" if random.random() < 0.95 else random.choice((str(year), f"+{year}", f"1{year:04d}"))
    separator = random.choice("-----/")
    text = (year_text, _pad(random.randint(1, months), random), _pad(random.randint(1, days), random))
    return separator.join(text)


def _clock(random: Random) -> str:
    text = f"{_pad(random.randint(0, random.choice((23, 23, 24))), random)}:{_pad(random.randint(0, 59), random)}"
    if random.random() < 0.9:
        text += f":{_pad(random.randint(0, random.choice((59, 59, 60))), random)}"
        if random.random() < 0.5:
            text += "." + _digits(random, random.choice((1, 3, 6, 7))) + "0" * random.choice((0, 0, 3))
    return text


def _offset(random: Random) -> str:
    odd = ("Z", "z", " UTC", "UTC", " GMT", "+00:00", "-00:00", "+18:00", "-18:00", "+18:01", "+5", "+0530", "+530",
           "+05:30", "-0330", "+14", " +01:00", "+1:00", "+02:60", " Europe/Berlin", "Europe/Berlin", "CET", "+24:00",
           "+01:00:00")  # fmt: skip
    return random.choice(odd)


def _moment(random: Random) -> str:
    date = _date(random)
    if random.random() < 0.1:
        return date
    text = date + random.choice("T T T Tt_") + _clock(random)
    return text + _offset(random) if random.random() < 0.4 else text


def _uuid(random: Random) -> str:
    text = "".join(random.choice("0123456789abcdefABCDEF") for _ in range(32))
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    return "-".join(parts) if random.random() < 0.9 else random.choice((text, "-".join(parts)[1:], f"{{{text}}}"))


def _boolean(random: Random) -> str:
    return random.choice(("true", "false", "TRUE", "False", "t", "F", "yes", "no", "Y", "n", "1", "0", "2", "on", "tr"))


def _string(random: Random) -> str:
    letters = (
        "a",
        "é",
        "𝄞",
        " ",
        "\t",
        ",",
        '"',
        "'",
        "\\",
        "\x01",
        "\x00",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufffd",
        "NULL",
    )
    return "".join(random.choice(letters) for _ in range(random.randint(0, 5)))


WRITERS: Mapping[str, Callable[[Random], str]] = {
    "b": _boolean,
    "i": _integer,
    "l": _integer,
    "f": _floating,
    "g": _floating,
    "m": _number,
    "n": _number,
    "o": _number,
    "d": _date,
    "t": _moment,
    "z": _moment,
    "c": _clock,
    "u": _uuid,
    "s": _string,
}


def cell(name: str, random: Random) -> str:
    """A text for the column ``name``: mostly of its type."""
    if random.random() < 0.03:
        return random.choice(("", "NULL", "null", "-", random.choice([*WRITERS.values()])(random)))
    blank = random.choice(_BLANKS) if random.random() < 0.15 else ""
    return blank + WRITERS[name](random) + (random.choice(_BLANKS) if random.random() < 0.1 else "")


def patterned(name: str, random: Random, date_format: str, timestamp_format: str) -> str:
    """A text for the column ``name``, which follows the pattern of its type, or nearly so."""
    pattern = {"d": date_format, "t": timestamp_format, "z": timestamp_format}.get(name)
    if pattern is None or random.random() < 0.05:
        return cell(name, random)
    values = {
        "yyyy": f"{random.choice((1, 1970, 2013, 2024, 2037, 9999, 10000)) if random.random() < 0.2 else 2013:04d}",
        "MM": f"{random.randint(1, 12):02d}",
        "dd": f"{random.randint(1, random.choice((28, 31, 32))):02d}",
        "HH": f"{random.randint(0, random.choice((23, 24))):02d}",
        "mm": f"{random.randint(0, random.choice((59, 60))):02d}",
        "ss": f"{random.randint(0, 59):02d}",
        "SSSSSS": _digits(random, 6),
        "SSS": _digits(random, random.choice((3, 3, 3, 4))),
        "M": str(random.randint(1, 12)),
        "d": str(random.randint(1, 31)),
        "H": str(random.randint(0, 23)),
    }
    text = pattern
    for letters, digits in values.items():
        text = text.replace(letters, "".join(chr(ord(one) + 0xE100) for one in digits), 1) if letters in text else text
    text = "".join(chr(ord(one) - 0xE100) if ord(one) >= 0xE100 else one for one in text).replace("'", "")
    return text if random.random() < 0.95 else random.choice((f" {text}", f"{text} ", text.lower(), text[:-1]))


def json_number(random: Random) -> str:
    """A number, true, false or a text, as Json writes it."""
    return random.choice((repr(random.random()), str(random.randint(-(2**70), 2**70)), "true", "1E5", json.dumps("x")))
