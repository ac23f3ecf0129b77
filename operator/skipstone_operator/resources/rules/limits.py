"""Bounds and allow-lists of specs: what CEL rules and re-validation both stand on.

Read by the kinds, by ``openapi`` and by ``checks``. Data only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from skipstone_core import signing
from skipstone_core.table_properties import COLUMN_PROPERTIES, PROPERTIES, Check, anything, one_of, shown, whole

from skipstone_operator.resources.rules.sparkconf import SETTINGS

MAX_COLUMNS = 1000
MAX_NAME = 255
MAX_KEYS = 32
MAX_PATHS = 64
MAX_CLAUSES = 64
MAX_PREDICATE = 4096
MAX_ASSIGNED = 1024
MAX_PATH = 1024
MAX_MAP = 64
MAX_VALUE = 1024

#: Levels of a catalog namespace with dots between them.
NAMESPACE = "^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$"
NAMESPACE_HELP = "may hold letters, digits, '_' and '-', and a dot between two levels: write for example sales.eu"

#: Iceberg's primitive types. Nested ones are not accepted in specs.
COLUMN_TYPE = (
    r"^(boolean|int|long|float|double|date|time|timestamp|timestamptz|string|uuid|binary"
    r"|decimal\(([1-9]|[12][0-9]|3[0-8]), ?([0-9]|[12][0-9]|3[0-8])\)|fixed\[[1-9][0-9]{0,5}\])$"
)
COLUMN_TYPE_HELP = (
    "boolean, int, long, float, double, decimal(p,s), date, time, timestamp, timestamptz, string, uuid, "
    "fixed[n] or binary"
)
#: The type of them with which Spark opens no column of a table, and what a refusal says of it.
CLOSED_TYPE = "time"
CLOSED_WAY_OUT = (
    "closes the whole table to Spark 4.1 with Iceberg 1.12: use string or long, or set allowTypesUnreadableBySpark to "
    "true"
)


def _plain_name(text: str) -> str | None:
    """A name of a region or of a service as signatures have it."""
    fits = re.fullmatch("[a-z0-9-]+", text)
    return None if fits else f"{shown(text)} is not a valid name: write lower-case letters, digits and '-'"


#: In CEL, whether requests to a catalog are signed; takes the path of the catalog, with a dot at its end.
IS_SIGNED = (
    f"has({{0}}properties) && '{signing.ENABLED}' in {{0}}properties && "
    f"{{0}}properties['{signing.ENABLED}'].matches('^(?i:true)$')"
)

#: Settings of catalog clients, with the check of each value.
CATALOG_SETTINGS: Mapping[str, Check] = {
    "audience": anything,
    "init_catalog_tables": one_of("true", "false"),
    "oauth2-server-uri": anything,
    "pool_pre_ping": one_of("true", "false"),
    "prefix": anything,
    "resource": anything,
    "rest-page-size": whole(1, 10_000),
    signing.SERVICE: _plain_name,
    signing.REGION: _plain_name,
    signing.ENABLED: one_of("true", "false"),
    "scope": anything,
    "snapshot-loading-mode": one_of("all", "refs"),
    "warehouse": anything,
}
CATALOG_PROPERTIES = tuple(CATALOG_SETTINGS)

TABLE_PROPERTIES = tuple(PROPERTIES)
TABLE_PROPERTY_PREFIXES = tuple(COLUMN_PROPERTIES)

SPARK_CONF = tuple(SETTINGS)

SOURCE_OPTIONS = (
    "dateFormat",
    "delimiter",
    "encoding",
    "escape",
    "header",
    "multiLine",
    "nullValue",
    "quote",
    "timestampFormat",
)
