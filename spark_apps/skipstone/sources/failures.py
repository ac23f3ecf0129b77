"""Tells which source file Spark could not read, and why, in one sentence.

Called around the action that reads. Everything that is not about a source file passes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.causes import find_cause
from skipstone.sources.listing import SourceListing, require_unchanged

_FAILED = re.compile(r"\[FAILED_READ_FILE\.\w+\][^\n]*?\bfile (?:file:)?/*(?P<path>/[^\n]*?)\.\s+SQLSTATE")
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*(?P<cause>[^\n]+)", re.MULTILINE)


@contextmanager
def readable(listing: SourceListing) -> Iterator[None]:
    """Turn Spark's failure to read a source file into BadData.

    SOURCE_CHANGED when the files are not those of ``listing`` any more, else SOURCE_UNREADABLE naming the file.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = _FAILED.search(str(error))
        if found is None or find_cause(error):
            raise
        require_unchanged(listing)
        name = unquote(found["path"]).removeprefix(listing.root).lstrip("/")
        causes = _CAUSE.findall(str(error))
        why = causes[-1].strip() if causes else "it is damaged or of another format"
        raise BadData(
            Reason.SOURCE_UNREADABLE, f"'{name}' cannot be read: {why}; fix the file", field="source.paths"
        ) from error
