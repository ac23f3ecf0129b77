"""When does an answer prove that a catalog has no such table or namespace?

An SQL catalog answers from its own database: no row is no table. A REST server answers 404 also when the table's
metadata file is away, when a proxy does not know the path, or when the prefix is that of another catalog, and PyIceberg
takes them all for absence. A proof is the name that Iceberg gives to it in the body of the answer
(``NoSuchTableException`` and its like in the REST specification), or the whole list of what is there, which lacks the
name. Everything else is an error: files are deleted and jobs are given up where a table is absent. Where all tables of
a catalog are gone through, what it lists and does not find is an error too, whatever it says: some servers hide so what
the credentials may not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.typedef import Identifier
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.tables.answers.reading import find_iceberg_error, find_response, first_line, is_from_elsewhere

#: What servers call a namespace that they do not have.
NO_NAMESPACE = frozenset({"NoSuchNamespaceException"})
#: What they call a table of another kind under that name.
_OTHER_KIND = frozenset({"NoSuchIcebergTableException"})
#: What they call a table that they do not have.
NO_TABLE = frozenset({"NoSuchTableException"}) | _OTHER_KIND | NO_NAMESPACE


def require_no_table(catalog: Catalog, identifier: Identifier, error: Exception) -> None:
    """Return when the table is proven absent. ``error``: what PyIceberg made of the answer.

    Raises DependencyUnavailable (CATALOG_UNAVAILABLE), and what the catalog raises when it does not list the tables.
    """
    if _is_proof(error, NO_TABLE):
        return
    answer, name = first_line(error), ".".join(identifier)
    try:
        listed = catalog.list_tables(identifier[:-1])
    except NoSuchNamespaceError:
        return
    except NotImplementedError:
        way_out = "ask who runs the catalog for an answer that names the cause"
        raise _unproven(catalog, f"the table {name} and lists no tables", answer, way_out) from error
    if identifier in {tuple(entry) for entry in listed}:
        way_out = "restore the table's metadata file or drop the table, and check what is on the way to the server"
        raise _unproven(catalog, f"the table {name} and lists it all the same", answer, way_out) from error


def require_no_namespace(catalog: Catalog, levels: Identifier, error: Exception) -> None:
    """Return when the namespace is proven absent; all else as ``require_no_table``. No ``levels``: the list of all."""
    if levels and _is_proof(error, NO_NAMESPACE):
        return
    answer, name = first_line(error), ".".join(levels)
    if not levels:
        way_out = "check spec.catalog.uri and the properties prefix and warehouse of spec.catalog.properties"
        raise _unproven(catalog, "its list of namespaces", answer, way_out) from error
    try:
        listed = catalog.list_namespaces(levels[:-1])
    except NoSuchNamespaceError:
        return
    except NotImplementedError:
        way_out = "ask who runs the catalog for an answer that names the cause"
        raise _unproven(catalog, f"the namespace {name} and lists no namespaces", answer, way_out) from error
    if levels in {tuple(entry) for entry in listed}:
        way_out = "check what is on the way to the server"
        raise _unproven(catalog, f"the namespace {name} and lists it all the same", answer, way_out) from error


def require_table_unlisted(catalog: Catalog, identifier: Identifier, error: Exception) -> None:
    """Return when a table that was listed is gone, or of another kind. ``error``: the answer to loading it.

    Raises DependencyUnavailable (CATALOG_UNAVAILABLE) when the catalog lists it all the same.
    """
    if find_response(error) is not None and _is_proof(error, _OTHER_KIND):
        return
    with suppress(NoSuchNamespaceError):
        if identifier in {tuple(entry) for entry in catalog.list_tables(identifier[:-1])}:
            raise _hidden(catalog, f"the table {'.'.join(identifier)}", error) from error


def require_namespace_unlisted(catalog: Catalog, levels: Identifier, error: Exception) -> None:
    """Return when a namespace that was listed is gone; all else as ``require_table_unlisted``."""
    with suppress(NoSuchNamespaceError):
        if levels in {tuple(entry) for entry in catalog.list_namespaces(levels[:-1])}:
            raise _hidden(catalog, f"the namespace {'.'.join(levels)}", error) from error


@contextmanager
def iceberg_answers(catalog: Catalog) -> Iterator[None]:
    """Turn an answer that is none of Iceberg's, such as the page of a proxy, into DependencyUnavailable.

    What PyIceberg does not know of a table's metadata is raised as it is.
    """
    try:
        yield
    except ValidationError as error:
        if is_from_elsewhere(error):
            way_out = "check spec.catalog.uri and what is on the way to the server"
            problem = error.errors()[0]["msg"]
            message = f"The catalog {catalog.name!r} answers what no catalog answers ({problem}): {way_out}."
            raise DependencyUnavailable(Reason.CATALOG_UNAVAILABLE, message) from error
        raise


def _is_proof(error: Exception, kinds: frozenset[str]) -> bool:
    """Return whether the server itself says so. What PyIceberg found out without an answer is no word of a server's."""
    if find_response(error) is None:
        return isinstance(error, NoSuchTableError | NoSuchNamespaceError)
    answer = find_iceberg_error(error)
    return answer is not None and answer.kind in kinds


def _hidden(catalog: Catalog, what: str, error: Exception) -> DependencyUnavailable:
    way_out = "let the credentials of the catalog read all of its tables"
    message = f"The catalog {catalog.name!r} does not find {what} ({first_line(error)}) and lists it all the same: "
    return DependencyUnavailable(Reason.CATALOG_UNAVAILABLE, f"{message}{way_out}.")


def _unproven(catalog: Catalog, what: str, answer: str, way_out: str) -> DependencyUnavailable:
    message = f"The catalog {catalog.name!r} answers 404 for {what} ({answer}): {way_out}."
    return DependencyUnavailable(Reason.CATALOG_UNAVAILABLE, message)
