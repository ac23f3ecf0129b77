"""A random mark on a catalog's namespace, by which a later run knows that it talks to the same catalog.

Set by runs that create or write tables, compared by confirm runs: a catalog that lost the mark proves nothing.
"""

from __future__ import annotations

import logging
import secrets

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, RESTError
from pyiceberg.typedef import Identifier
from requests import RequestException
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.ids import NAMESPACE_PROPERTY
from sqlalchemy.exc import SQLAlchemyError

_REFUSALS = (
    NotImplementedError,
    NoSuchNamespaceError,
    DependencyUnavailable,
    RESTError,
    RequestException,
    SQLAlchemyError,
    OSError,
)
_log = logging.getLogger(__name__)


def make_namespace(catalog: Catalog, levels: Identifier) -> None:
    """Make the namespace ``levels`` unless it is there; where a catalog wants the outer ones first, those too."""
    try:
        catalog.create_namespace_if_not_exists(levels)
    except (NoSuchNamespaceError, RESTError):
        if len(levels) == 1:
            raise
        make_namespace(catalog, levels[:-1])
        catalog.create_namespace_if_not_exists(levels)


def mark_namespace(catalog: Catalog, namespace: str) -> None:
    """Give ``namespace`` a mark unless it has one. A catalog that refuses gets a warning: the mark is only of use."""
    if find_mark(catalog, namespace):
        return
    try:
        catalog.update_namespace_properties(namespace, updates={NAMESPACE_PROPERTY: secrets.token_hex(16)})
    except _REFUSALS as error:
        _log.warning("the namespace %s takes no mark: %s", namespace, error)


def find_mark(catalog: Catalog, namespace: str) -> str:
    """The mark of ``namespace``; empty when it has none or the catalog does not tell."""
    try:
        return str(catalog.load_namespace_properties(namespace).get(NAMESPACE_PROPERTY, ""))
    except _REFUSALS as error:
        _log.warning("the properties of the namespace %s cannot be read: %s", namespace, error)
        return ""
