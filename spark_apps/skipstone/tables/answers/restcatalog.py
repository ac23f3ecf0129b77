"""PyIceberg's REST catalog, which says that something is absent only when that is proven.

The base of every REST catalog that runs open, so that no caller can forget it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.catalog import Catalog, PropertiesUpdateSummary
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from skipstone.compat.pyiceberg import HookedRestCatalog
from skipstone.tables.answers.absence import iceberg_answers, require_no_namespace, require_no_table

Name = str | Identifier


class AnsweredRestCatalog(HookedRestCatalog):
    """Raises DependencyUnavailable (CATALOG_UNAVAILABLE) for a 404 that proves nothing, and for what is not an answer.

    See ``absence``.
    """

    def load_table(self, identifier: Name) -> Table:
        """As PyIceberg's."""
        with self._absent_table(identifier):
            table: Table = super().load_table(identifier)
        return table

    def drop_table(self, identifier: Name, purge_requested: bool = False) -> None:  # noqa: FBT001, FBT002 - PyIceberg's
        """As PyIceberg's."""
        with self._absent_table(identifier):
            super().drop_table(identifier, purge_requested)

    def rename_table(self, from_identifier: Name, to_identifier: Name) -> Table:
        """As PyIceberg's."""
        with self._absent_table(from_identifier):
            table: Table = super().rename_table(from_identifier, to_identifier)
        return table

    def table_exists(self, identifier: Name) -> bool:
        """As PyIceberg's. It asks for an answer without a body, which proves no absence: then the table is loaded."""
        if super().table_exists(identifier):
            return True
        try:
            self.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return False
        return True

    def create_table(  # noqa: PLR0913, PLR0917 - PyIceberg's
        self,
        identifier: Name,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """As PyIceberg's."""
        with self._absent_namespace(Catalog.identifier_to_tuple(identifier)[:-1]):
            table: Table = super().create_table(identifier, schema, location, partition_spec, sort_order, properties)
        return table

    def list_tables(self, namespace: Name) -> list[Identifier]:
        """As PyIceberg's: all pages."""
        with self._absent_namespace(namespace):
            names: list[Identifier] = super().list_tables(namespace)
        return names

    def list_namespaces(self, namespace: Name = ()) -> list[Identifier]:
        """As PyIceberg's: all pages."""
        with self._absent_namespace(namespace):
            names: list[Identifier] = super().list_namespaces(namespace)
        return names

    def load_namespace_properties(self, namespace: Name) -> Properties:
        """As PyIceberg's."""
        with self._absent_namespace(namespace):
            properties: Properties = super().load_namespace_properties(namespace)
        return properties

    def update_namespace_properties(
        self, namespace: Name, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """As PyIceberg's."""
        with self._absent_namespace(namespace):
            summary: PropertiesUpdateSummary = super().update_namespace_properties(namespace, removals, updates)
        return summary

    def drop_namespace(self, namespace: Name) -> None:
        """As PyIceberg's."""
        with self._absent_namespace(namespace):
            super().drop_namespace(namespace)

    def namespace_exists(self, namespace: Name) -> bool:
        """As PyIceberg's, with a proof as ``table_exists``."""
        if super().namespace_exists(namespace):
            return True
        try:
            self.load_namespace_properties(namespace)
        except NoSuchNamespaceError:
            return False
        return True

    @contextmanager
    def _absent_table(self, identifier: Name) -> Iterator[None]:
        try:
            with iceberg_answers(self):
                yield
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            require_no_table(self, Catalog.identifier_to_tuple(identifier), error)
            raise

    @contextmanager
    def _absent_namespace(self, namespace: Name) -> Iterator[None]:
        try:
            with iceberg_answers(self):
                yield
        except NoSuchNamespaceError as error:
            require_no_namespace(self, Catalog.identifier_to_tuple(namespace), error)
            raise
