"""What a run lacked: memory, room on a disk, or its JVM; told from an error and all that it was caused by.

Used where errors become reports, and where an error would otherwise be blamed on a source or a segment.
Must not be asked about errors that a user caused: those say what is wrong themselves.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from skipstone_core.errors import DependencyUnavailable, SkipstoneError, UserError
from skipstone_core.reasons import Reason

from skipstone.compat.failures import launched_jvm, stack_trace
from skipstone.jvm import JvmEnded, jvm_exit_code

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_ROOM_TEXT = re.compile(r"No space left on device|Disk quota exceeded|database or disk is full")
_NO_MEMORY = re.compile(
    r"(?:java\.lang\.OutOfMemoryError|\.SparkOutOfMemoryError)(?:: (?P<what>[^\n]+))?"
    r"|^(?:[\w.]+\.)?(?P<python>\w*MemoryError)\b"
    r"|executor with id \S+ exited with exit code (?P<code>52|137)\b",
    re.MULTILINE,
)
#: What Arrow's file system says of a request to S3 that failed.
_S3 = re.compile(
    r"(?:for key '(?P<key>[^'\n]*)' in bucket '(?P<bucket>[^'\n]*)'[^\n]{0,20})?"
    r"AWS Error (?P<code>\w+)(?: \(HTTP status (?P<status>\d+)\))? during (?P<operation>\w+) operation"
    r"(?:: Unable to parse ExceptionName: (?P<name>\w+))?"
)
#: Where a word begins in a code as S3 writes it.
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
#: What S3 and its like call credentials whose time is over.
_EXPIRED = frozenset({"EXPIRED_TOKEN", "EXPIRED_TOKEN_EXCEPTION", "TOKEN_REFRESH_REQUIRED"})
_S3_ADVICE = {
    "ACCESS_DENIED": "give the credentials s3:GetObject, s3:PutObject and s3:DeleteObject on the objects of the bucket",
    **dict.fromkeys(_EXPIRED, "the credentials expired, and the next attempt takes new ones"),
    "INVALID_ACCESS_KEY_ID": "set the keys of the Secret to those of the bucket's owner; keys that the catalog vends "
    "have ended, and the next attempt takes new ones",
    "NO_SUCH_BUCKET": "create the bucket, or fix its name or endpoint",
    "REQUEST_TIME_TOO_SKEWED": "set the node's clock",
    "SIGNATURE_DOES_NOT_MATCH": "fix AWS_SECRET_ACCESS_KEY in the Secret",
}
_WAIT = "wait until it answers, and try again"
_S3_FULL = 507
_EXECUTOR = re.compile(r"\(TID \d+\) \(\S+ executor (?!driver)\S+\)|ExecutorLostFailure")
#: What calls that are under way hear of a JVM that ends.
_SHUT_DOWN = re.compile(r"SparkContext was shut down|stopped SparkContext")
#: Outside the heap: what the JVM's own limit does not bound.
_BESIDE_THE_HEAP = re.compile(r"Metaspace|Compressed class space|native thread|Direct|direct buffer|MemoryError")
#: Spark ends its JVM with 52 when a task ran out of memory, and so does a JVM with 3 that was told to.
_ENDED_BY_MEMORY = frozenset({52, 3})
_KILLED = frozenset({-9, 137})


@dataclass(frozen=True)
class Cause:
    """Why a run could not go on, with a sentence that says what to do."""

    reason: Reason
    message: str


def find_cause(error: BaseException) -> Cause | None:
    """The cause of ``error``, when it or an error behind it tells that something ran out or that the JVM is gone."""
    if isinstance(error, UserError) and error.reason in (Reason.OUT_OF_MEMORY, Reason.DISK_FULL, Reason.JVM_LOST):
        return Cause(error.reason, str(error))
    chain = [link for link in _chain(error) if not isinstance(link, UserError)]
    named = next((cause for link in chain if (cause := _cause_of(link))), None)
    if named is None and (any(map(is_jvm_lost, chain)) or _ended_with(error)):
        return _lost_jvm(next((link for link in chain if isinstance(link, JvmEnded)), None))
    return named


def is_jvm_lost(error: BaseException) -> bool:
    """Return whether ``error`` says that nobody answers for the JVM."""
    if isinstance(error, JvmEnded | Py4JNetworkError):
        return True
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return "Trace:" not in str(error)  # Java's own complaints come with one
    text = _text(error)
    if text is None or _SHUT_DOWN.search(text):
        return True
    frames = traceback.walk_tb(error.__traceback__)
    return isinstance(error, OSError | EOFError) and any(_module(frame.f_globals) == "py4j" for frame, _ in frames)


def no_room(error: OSError, place: str = "") -> DependencyUnavailable:
    """A full disk as an error of its own; ``place``: what was written to."""
    return DependencyUnavailable(Reason.DISK_FULL, _no_room_text(os.strerror(error.errno or 0), place))


def first_lines(error: BaseException) -> str:
    """Return the message of ``error``, in one line and without the stack of the JVM."""
    lines = [line.strip() for line in (_text(error) or "").splitlines() if not line.lstrip().startswith("at ")]
    causes = [line for line in lines[2:] if line.startswith("Caused by: ")]
    return " ".join(line for line in (*lines[:2], *causes[-1:]) if line) or type(error).__name__


def _module(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _cause_of(error: BaseException) -> Cause | None:
    if isinstance(error, MemoryError):
        return _no_memory(str(error) or "MemoryError", "driver", heap=False)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return Cause(Reason.DISK_FULL, _no_room_text(os.strerror(error.errno), str(error.filename or "")))
    text = _text(error) or ""
    if match := _NO_MEMORY.search(text):
        what = match["what"] or match["python"] or f"it ended with exit code {match['code']}"
        who = "executor" if _EXECUTOR.search(text) else "driver"
        return _no_memory(what, who, heap=not (match["code"] == "137" or _BESIDE_THE_HEAP.search(what)))
    if refused := _S3.search(text):
        return _refused_by_s3(refused)
    if full := _NO_ROOM_TEXT.search(text):
        return Cause(Reason.DISK_FULL, _no_room_text(full[0], ""))
    return None


def _refused_by_s3(match: re.Match[str]) -> Cause:
    """Only the code is told: the rest of an answer may quote what was signed."""
    place = f" for '{match['key']}' in bucket '{match['bucket']}'" if match["bucket"] else ""
    is_full = int(match["status"] or 0) == _S3_FULL
    code = _WORD.sub("_", match["name"]).upper() if match["name"] else match["code"]
    if (code, match["status"], match["operation"]) == ("UNKNOWN", "400", "HeadObject"):
        code = "EXPIRED_TOKEN"  # an answer to HEAD has no body that says so
    way_out = "free some room or raise the quota" if is_full else _S3_ADVICE.get(code, _WAIT)
    answer = f"{code} {match['status']}" if match["status"] else code
    return Cause(_s3_reason(code, is_full=is_full), f"S3 answered {answer} to {match['operation']}{place}: {way_out}")


def _s3_reason(code: str, *, is_full: bool) -> Reason:
    if code in _EXPIRED:
        return Reason.CREDENTIALS_EXPIRED
    return Reason.DISK_FULL if is_full else Reason.STORAGE_UNAVAILABLE


def _ended_with(error: BaseException) -> bool:
    """Return whether the JVM of this process has ended: whatever a library makes of that, it is no fault of its own."""
    return not isinstance(error, SkipstoneError) and jvm_exit_code(launched_jvm(), seconds=0.0) is not None


def _text(error: BaseException) -> str | None:
    """All that an error says, with the stack of the JVM; None when it is a JVM's error and the JVM is gone by now."""
    try:
        return f"{error}\n{stack_trace(error)}"
    except (Py4JError, OSError):
        return None


def _no_memory(what: str, who: str, *, heap: bool) -> Cause:
    way_out = (
        f"raise spec.spark.{who}.memory of the Warehouse"
        if heap
        else f"raise spark.{who}.memoryOverhead in spec.spark.conf of the Warehouse"
    )
    whom = "an executor" if who == "executor" else "the driver"
    return Cause(Reason.OUT_OF_MEMORY, f"{whom} ran out of memory ({what.strip()}): {way_out}")


def _no_room_text(what: str, place: str) -> str:
    where = f" in {place}" if place else ", on the Warehouse's volume or on the scratch volume of a pod"
    return f"there is no room left{where} ({what}): free some or enlarge the volume"


def _lost_jvm(ended: JvmEnded | None) -> Cause:
    code = ended.code if ended else jvm_exit_code(launched_jvm())
    if code in _ENDED_BY_MEMORY:
        return _no_memory(f"its JVM ended with exit code {code}", "driver", heap=True)
    if code is None:
        how = "does not answer any more"
    elif code in _KILLED:
        how = "was killed, as a node does to a process that takes more memory than its pod may have"
    else:
        how = f"ended with exit code {code}"
    way_out = "look into the driver's log, and raise spark.driver.memoryOverhead in spec.spark.conf if it was memory"
    return Cause(Reason.JVM_LOST, f"the driver's JVM {how}: {way_out}")
