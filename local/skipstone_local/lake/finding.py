"""Finds the Tables of a lake's Warehouse, and their indexes, by the names that tables have in the catalog."""

from __future__ import annotations

from dataclasses import dataclass

from skipstone_cli.kinds import INDEX, TABLE
from skipstone_cli.reading import JsonObject, entries_of, name_of, text_of

from skipstone_local.client.objects import Selection
from skipstone_local.lake.declaring import no_table, parse_identifier
from skipstone_local.lake.settling import Requests


@dataclass(frozen=True)
class LakeTables:
    """The Tables of the Warehouse with the name ``warehouse``. All calls raise LakeError."""

    requests: Requests
    warehouse: str

    def identity(self, name: str) -> JsonObject:
        """The fields of a Table's spec that name a table."""
        namespace, last = parse_identifier(name)
        return {
            "warehouseRef": {"name": self.warehouse},
            "identifier": {"namespace": namespace, "name": last},
        }

    def all(self) -> list[JsonObject]:
        """All Tables."""
        listed = self.requests.list_objects(TABLE, Selection(namespace=self.requests.namespace))
        return [
            entry
            for entry in entries_of(listed, "items")
            if text_of(entry, "spec", "warehouseRef", "name") == self.warehouse
        ]

    def list_indexes(self, table: JsonObject) -> list[JsonObject]:
        """The indexes of a Table."""
        listed = self.requests.list_objects(INDEX, Selection(namespace=self.requests.namespace))
        return [
            entry
            for entry in entries_of(listed, "items")
            if text_of(entry, "spec", "tableRef", "name") == name_of(table)
        ]

    def find(self, name: str) -> JsonObject | None:
        """The Table of a table; None if there is none."""
        identifier = self.identity(name)["identifier"]
        return next((table for table in self.all() if table["spec"]["identifier"] == identifier), None)

    def require(self, name: str) -> JsonObject:
        """The Table of a table."""
        known = self.find(name)
        if known is None:
            raise no_table(name)
        return known
