"""Tells which source file could not be read, and why, in one sentence.

Called around all that reads a source. Everything that is not about a source file passes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from skipstone_core.errors import BadData, DependencyUnavailable, UserError
from skipstone_core.reasons import Reason

from skipstone.causes import find_cause
from skipstone.sources.listing import SourceListing, require_unchanged
from skipstone.sources.presence import has_vanished, vanished
from skipstone.tasks.failures import carried

_FAILED = re.compile(r"\[FAILED_READ_FILE\.\w+\][^\n]*?\bfile (?:(?:file|s3a):)?/*(?P<path>/[^\n]*?)\.\s+SQLSTATE")
#: What Hadoop's S3A, Amazon's SDK and networks raise when a store does not answer, or refuses.
_REFUSED = re.compile(
    r"\b(?:(?:org\.apache\.hadoop\.fs\.s3a|software\.amazon\.awssdk(?:\.\w+)*|org\.apache\.http|java\.net|javax\.net\.ssl)"
    r"\.([A-Z]\w*Exception)|java\.nio\.file\.(A\w+Exception))(?=[:\s]|$)"
)
#: What Java's reader of ORC makes of a fraction of a second before 1970 that the one in C++ wrote.
_ORC_FRACTION = "nanos > 999999999 or < 0"
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*(?P<cause>[^\n]+)", re.MULTILINE)


@contextmanager
def readable(listing: SourceListing) -> Iterator[None]:
    """Turn a failure to read the source into what is wrong with it.

    BadData with SOURCE_CHANGED when the files are not those of ``listing`` any more, whatever was raised: a file that
    is replaced fails in many ways, and none of them tells why. Else what a task told, DependencyUnavailable when a
    store did not answer or had the files only before and after, or SOURCE_UNREADABLE naming the file for what Spark
    says of one; all else passes unchanged.
    """
    try:
        yield
    except Exception as error:
        if find_cause(error):
            raise
        refused = _require_unchanged(listing, error)
        if failure := carried(error):
            raise failure from error
        if isinstance(error, PySparkException | Py4JJavaError):
            text = str(error)
            if problem := _away(listing, text, refused) or _unreadable(listing, text):
                raise problem from error
        raise


def _require_unchanged(listing: SourceListing, error: Exception) -> UserError | None:
    """Raise what ``require_unchanged`` finds; what a storage says that does not answer now is given back."""
    try:
        require_unchanged(listing)
    except UserError as changed:
        if changed.reason is Reason.SOURCE_CHANGED:
            raise changed from error
        return changed
    return None


def _away(listing: SourceListing, text: str, refused: UserError | None) -> UserError | None:
    """What a store that answers otherwise than with the file makes of Spark's failure; None for other ones."""
    if has_vanished(text):
        return vanished(listing)
    if (match := _REFUSED.search(text)) is None:
        return None
    return refused or DependencyUnavailable(
        Reason.STORAGE_UNAVAILABLE,
        f"Spark cannot read {listing.storage.where()} ({match[1] or match[2]}): check the permissions and that the "
        "endpoint answers, and try again",
    )


def _unreadable(listing: SourceListing, text: str) -> BadData | None:
    if _ORC_FRACTION in text:
        first, *others = listing.files
        message = (
            f"'{first.path}'{f' or one of {len(others)} more files' * bool(others)} has a timestamp before 1970 with a "
            "fraction of a second as the C++ library of ORC (pyarrow) writes it, which Spark does not read: write such "
            "files as Parquet"
        )
        return BadData(Reason.SOURCE_UNREADABLE, message, field="source.paths")
    if (match := _FAILED.search(text)) is None:
        return None
    root = listing.storage.address().partition(":")[2].strip("/")
    name = unquote(match["path"]).lstrip("/").removeprefix(root).lstrip("/")
    causes = _CAUSE.findall(text)
    why = causes[-1].strip() if causes else "it is damaged or of another format"
    return BadData(Reason.SOURCE_UNREADABLE, f"'{name}' cannot be read: {why}; fix the file", field="source.paths")
