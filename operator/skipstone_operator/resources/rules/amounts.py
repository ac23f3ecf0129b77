"""Sizes, times and ratios as specs write them: what fits, and what it means in numbers.

Patterns are bounds too, so that the API server and the operator refuse the same values with one sentence. Data and
pure functions.
"""

from __future__ import annotations

from skipstone_operator.resources.rules.sparkconf import MIB

FILE_SIZE = "^([1-9][0-9]{0,2}Mi|[1-3][0-9]{3}Mi|40([0-8][0-9]|9[0-6])Mi|[1-4]Gi)$"
FILE_SIZE_HELP = "must be a size from 1Mi to 4Gi in whole Mi or Gi: write for example 256Mi"
RATIO = r"^(0(\.[0-9]{1,3})?|1(\.0{1,3})?)$"
RATIO_HELP = "must be a number from 0 to 1 with at most three digits after the point: write for example 0.1"
MINUTE_OR_LONGER = "^([1-9][0-9]{0,4}m|[1-9][0-9]{0,3}[hd])$"
DAY_OR_LONGER = "^((2[4-9]|[3-9][0-9]|[1-9][0-9]{2,3})h|[1-9][0-9]{0,3}d)$"
CPU = r"^([1-9][0-9]{0,5}m|[1-9][0-9]{0,2}(\.[0-9]{1,3})?|0\.[0-9]{0,2}[1-9])$"
CPU_HELP = "must be a number of cores, or of thousandths with m: write for example 250m or 2"
WHOLE_MEMORY = "^[1-9][0-9]{0,6}[MG]i$"
WHOLE_MEMORY_HELP = "must be a size in whole Mi or Gi: write for example 512Mi"
WINDOW = "^([1-9][0-9]{0,3}m|[1-9][0-9]{0,2}h)$"

_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
_BYTES = {"Mi": MIB, "Gi": 1024 * MIB}


def read_seconds(text: str) -> int:
    """Seconds of ``90m``, ``12h`` or ``5d``. Only for what a pattern here lets in."""
    return int(text[:-1]) * _SECONDS[text[-1]]


def read_size(text: str) -> int:
    """Bytes of ``256Mi`` or ``1Gi``. Only for what a pattern here lets in."""
    return int(text[:-2]) * _BYTES[text[-2:]]


def read_permille(text: str) -> int:
    """Thousandths of ``0.125``. Only for what a pattern here lets in."""
    whole, _, digits = text.partition(".")
    return 1000 * int(whole) + int(digits.ljust(3, "0"))
