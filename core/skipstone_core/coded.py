"""Enumerations whose members are codes with properties.

Used by every list of reasons and of types that specs name. Must not know any of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Coded(StrEnum):
    """A member is declared as its code and its properties, which ``__init__`` of the enumeration keeps."""

    def __new__(cls, code: str, *_properties: object) -> Self:
        """Make a member that is equal to its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        return member


class CodedSentence(Coded):
    """Codes of reasons; ``sentence`` says each for people."""

    def __init__(self, _code: str, sentence: str = "") -> None:
        self.sentence = sentence
