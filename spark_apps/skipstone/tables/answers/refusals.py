"""When is an answer to a commit a refusal, and how are refusals told?

A refusal says that the server did not do what it was asked: the status 4xx with an error in Iceberg's own form. By
itself it proves nothing of a commit, which somebody on the way may have sent twice: a fresh look at the table has to
agree. What may come from a proxy, and what says that the server gave up waiting, is not a refusal.
"""

from __future__ import annotations

import re

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    OAuthError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from skipstone_core import signing
from skipstone_core.history.commits import Conflicted
from skipstone_core.reasons import Reason

from skipstone.tables.answers.reading import IcebergError, find_iceberg_error, find_response, first_line, message_of
from skipstone.tables.clocks import newest_ms, time_text

#: Statuses of refusals that may be none: a timeout, a conflict (which has a rule of its own), too early, too many.
_UNSURE_STATUSES = frozenset({408, 409, 425, 429})
_UNSURE_KINDS = frozenset({"CommitStateUnknownException"})
#: What Iceberg's libraries in Java and Rust say of metadata whose times would go back.
_TIMES = re.compile(
    r"Invalid (snapshot|update) timestamp|Expected sorted (snapshot log|previous metadata log) entries", re.IGNORECASE
)
#: What services of Amazon say of the keys that signed a request, some of them with the status of a bad request.
_KEYS_REFUSED = re.compile("signature|security ?token|ExpiredToken|UnrecognizedClient", re.IGNORECASE)
#: What they say of a signature that was made at another time than they have; it is not about the keys.
_CLOCKS_DIFFER = re.compile("signature (has )?expired|signature not yet current", re.IGNORECASE)
#: What they say of a snapshot when another one got into the table first, on a branch that the commit did not name.
_OUTRUN = re.compile(r"older than last sequence number|first-row-id is behind", re.IGNORECASE)
_OTHER_KEYS = "spec.credentialsSecretRef or of the role of the ServiceAccount"
_LOGIN = "refused the credentials of spec.credentialsSecretRef"
#: What PostgreSQL and its client say of a login, in the language of the server or of its default.
_LOGIN_REFUSED = re.compile(r"password authentication failed|no password supplied|role .* does not exist")


def find_refusal(error: Exception) -> IcebergError | None:
    """The words of the catalog's server that refused a request; None when ``error`` may stand for something else."""
    refusal = find_iceberg_error(error)
    if refusal is None or not 400 <= refusal.status < 500:
        return None
    return None if refusal.status in _UNSURE_STATUSES or refusal.kind in _UNSURE_KINDS else refusal


def is_conflict(error: CommitFailedException) -> bool:
    """Return whether the catalog itself says that the table changed; the 409 of a proxy may mean something else."""
    return find_response(error) is None or find_iceberg_error(error) is not None


def refused_commit(error: Exception, table: Table, now_ms: int) -> Conflicted | None:
    """How a change of ``table`` ends that the server refused and that is not in the table; None for other errors.

    ``now_ms``: what this node's clock says. The reasons are CLOCK_SKEWED and CATALOG_UNAVAILABLE.
    """
    refusal = find_refusal(error)
    if refusal is None or _OUTRUN.search(refusal.message):
        return None
    name = ".".join(table.name())
    catalog = f"The catalog {table.catalog.name!r}"
    if _TIMES.search(refusal.message):
        message = f"{catalog} refused the change of {name} for its time ({refusal.text}): {_clocks(table, now_ms)}."
        return Conflicted(Reason.CLOCK_SKEWED, message)
    if isinstance(error, UnauthorizedError | ForbiddenError):
        return Conflicted(Reason.CATALOG_UNAVAILABLE, f"{catalog} {_LOGIN}: {refusal.text}")
    message = (
        f"{catalog} refused the change of {name}: {refusal.text}; correct what it names, or ask who runs the catalog."
    )
    return Conflicted(Reason.CATALOG_UNAVAILABLE, message)


def _clocks(table: Table, now_ms: int) -> str:
    newest = newest_ms(table.metadata)
    if newest > now_ms:
        behind = f"the clock of its server is behind the last change of the table, at {time_text(newest)}"
        return f"{behind}; set the clock right, or, when the table's time is wrong, wait until that time has passed"
    behind = f"the clock of its server is behind that of this node, which says {time_text(now_ms)}"
    return f"{behind}; set both clocks right, and try again"


def tell_trouble(error: Exception) -> tuple[Reason, str]:
    """Why a catalog did not do what it was asked, as a reason and what follows "The catalog 'name'"."""
    if refused := _refused_keys(error):
        return Reason.CATALOG_UNAVAILABLE, refused
    answer = first_line(error)
    if isinstance(error, UnauthorizedError | ForbiddenError | OAuthError) or _LOGIN_REFUSED.search(answer):
        return Reason.CATALOG_UNAVAILABLE, f"{_LOGIN}: {answer}"
    refusal = find_refusal(error)
    if refusal is None:
        return Reason.CATALOG_UNAVAILABLE, f"did not answer: {answer}"
    if _TIMES.search(refusal.message):
        way_out = "the clock of its server is behind the last change of the table; set the clocks right, and try again"
        return Reason.CLOCK_SKEWED, f"refused a change for its time ({answer}): {way_out}."
    return Reason.CATALOG_UNAVAILABLE, f"refused a request: {answer}"


def _refused_keys(error: Exception) -> str:
    """Return the fate of a signed request whose keys were refused, and the way out; empty for all else."""
    answer = find_response(error)
    if answer is None or not str(answer.request.headers.get("Authorization", "")).startswith("AWS4-"):
        return ""
    message = message_of(answer) or first_line(error)
    is_refused = isinstance(error, UnauthorizedError | ForbiddenError)
    if not is_refused and not (isinstance(error, BadRequestError) and _KEYS_REFUSED.search(message)):
        return ""
    what = f"refused the keys that signed a request: {message.rstrip('.')}"
    if _CLOCKS_DIFFER.search(message):
        return f"{what}; set the clock of the node: it differs from that of the catalog."
    if "expired" in message.lower():
        return f"{what}; renew the keys of {_OTHER_KEYS}."
    names = f"{signing.SERVICE} and {signing.REGION} of spec.{signing.PROPERTIES_FIELD}"
    return f"{what}; check the keys of {_OTHER_KEYS}, their permissions, and {names}."
