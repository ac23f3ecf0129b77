"""An Sql catalog by Iceberg's REST protocol, for reading: namespaces, lists of tables, metadata.

Tables of indexes are neither listed nor loaded. Answers carry no credentials. Must not know HTTP but its answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import S3_ENDPOINT, S3_FORCE_VIRTUAL_ADDRESSING, S3_REGION
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from skipstone_core.contract.planning import PlanningSettings
from skipstone_core.ids import INDEX_DEFINITION_PROPERTY, is_index_table_name
from starlette.responses import Response

from skipstone.serving.answers import NO_NAMESPACE, NO_TABLE, Refused, json_response
from skipstone.serving.protocol import PLANNING_ENDPOINTS, READING_ENDPOINTS, mode_defaults
from skipstone.tables.catalogs import METADATA_READS, catalog_answers
from skipstone.tables.decoding.metadatafiles import read_stored

#: Where S3 is, in the words of Java and of PyIceberg.
_PATH_STYLE, _CLIENT_REGION = "s3.path-style-access", "client.region"


@dataclass(frozen=True)
class CatalogFront:
    """The catalog of one Warehouse; all methods may wait, and raise Refused and DependencyUnavailable."""

    settings: PlanningSettings
    catalog: Catalog

    def config(self) -> Response:
        """The answer to ``/v1/config``."""
        defaults = mode_defaults(self.settings.mode)
        endpoints = [*READING_ENDPOINTS, *PLANNING_ENDPOINTS]
        return json_response({"defaults": defaults, "overrides": {}, "endpoints": endpoints})

    def namespaces(self, parent: Identifier) -> Response:
        """Namespaces directly below ``parent``; those at the top when it is empty."""
        with self._answering(parent):
            if parent and not self.catalog.namespace_exists(parent):
                raise _no_namespace(parent)
            children = self.catalog.list_namespaces(parent)
        return json_response({"namespaces": sorted(list(levels) for levels in children), "next-page-token": None})

    def namespace(self, levels: Identifier) -> Response:
        """The properties of a namespace."""
        with self._answering(levels):
            properties = self.catalog.load_namespace_properties(levels)
        return json_response({"namespace": list(levels), "properties": properties})

    def tables(self, levels: Identifier) -> Response:
        """The tables in a namespace, without those of indexes."""
        with self._answering(levels):
            if not self.catalog.namespace_exists(levels):
                raise _no_namespace(levels)
            names = [identifier[-1] for identifier in self.catalog.list_tables(levels)]
        tables = [{"namespace": list(levels), "name": name} for name in sorted(names) if not is_index_table_name(name)]
        return json_response({"identifiers": tables, "next-page-token": None})

    def table(self, identifier: Identifier, etag: str) -> Response:
        """A table with its metadata as it is stored; 304 when ``etag`` is that of the caller's copy."""
        table = self.opened(identifier)
        config = self._storage()
        named = json.dumps([table.metadata_location, config], sort_keys=True)
        ours = f'"{hashlib.sha256(named.encode()).hexdigest()[:32]}"'
        if ours in {tag.strip().removeprefix("W/") for tag in etag.split(",")}:
            return Response(status_code=304, headers={"etag": ours})
        with catalog_answers(self.catalog.name):
            stored = read_stored(table.io.new_input(table.metadata_location))
        location = json.dumps(table.metadata_location)
        body = f'{{"metadata-location":{location},"config":{json.dumps(config)},"metadata":'.encode() + stored + b"}"
        return Response(body, 200, {"etag": ours}, "application/json")

    def opened(self, identifier: Identifier) -> Table:
        """A table that callers may load. Raises Refused (404) for others."""
        if not is_index_table_name(identifier[-1]):
            table = self._loaded(identifier)
            if INDEX_DEFINITION_PROPERTY not in table.properties:
                return table
        raise _no_table(identifier)

    def _loaded(self, identifier: Identifier) -> Table:
        with catalog_answers(self.catalog.name):
            for _ in range(METADATA_READS):
                try:
                    return self.catalog.load_table(identifier)
                except (NoSuchTableError, NoSuchNamespaceError):
                    raise _no_table(identifier) from None
                except FileNotFoundError:  # replaced while it was about to be read
                    continue
            return self.catalog.load_table(identifier)

    @contextmanager
    def _answering(self, levels: Identifier) -> Iterator[None]:
        with catalog_answers(self.catalog.name):
            try:
                yield
            except NoSuchNamespaceError:
                raise _no_namespace(levels) from None

    def _storage(self) -> dict[str, str]:
        """How tables' files are reached, without what is secret."""
        properties = self.catalog.properties
        config = {name: properties[name] for name in (S3_ENDPOINT, S3_REGION) if properties.get(name)}
        if region := properties.get(S3_REGION):
            config[_CLIENT_REGION] = region
        if virtual := properties.get(S3_FORCE_VIRTUAL_ADDRESSING):
            config |= {S3_FORCE_VIRTUAL_ADDRESSING: virtual, _PATH_STYLE: str(virtual != "true").lower()}
        return config


def _no_table(identifier: Identifier) -> Refused:
    return Refused(404, NO_TABLE, f"the catalog holds no table {'.'.join(identifier)}", outcome="absent")


def _no_namespace(levels: Identifier) -> Refused:
    return Refused(404, NO_NAMESPACE, f"the catalog holds no namespace {'.'.join(levels)}", outcome="absent")
