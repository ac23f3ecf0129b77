"""Proves that Spark found every file that it was told to read.

It looks whether a file is there, and lists it later: one that is away by then it leaves out without a word.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.compat.pyspark import count_input_files
from skipstone.sources.listing import SourceListing

_VANISHED = re.compile(r"\[(?:PATH_NOT_FOUND|UNABLE_TO_INFER_SCHEMA|FAILED_READ_FILE\.FILE_NOT_EXIST)\]")


def complete(frame: DataFrame, listing: SourceListing, files: int) -> DataFrame:
    """``frame``, made to read so many ``files`` of ``listing``. Raises DependencyUnavailable (SOURCE_CHANGED)."""
    if count_input_files(frame) != files:
        raise vanished(listing)
    return frame


def has_vanished(message: str) -> bool:
    """Return whether Spark says that a file is not there."""
    return bool(_VANISHED.search(message))


def vanished(listing: SourceListing) -> DependencyUnavailable:
    """Files were there before, and away when Spark looked for them."""
    return DependencyUnavailable(
        Reason.SOURCE_CHANGED,
        f"Spark did not find all files of the source in {listing.storage.where()}: leave source files alone while they "
        "are read, and check that the storage answers; the next attempt reads them again",
        field="source.paths",
    )
