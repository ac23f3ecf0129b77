"""Addresses of catalogs: what may stand in one.

Used by the rules of the Warehouse and by the data plane before it connects. Messages never repeat an address: it may
hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from skipstone_core.contract.requests import CatalogType

SECRET = "the Secret of spec.credentialsSecretRef"
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
#: Parameters of libpq that hold no secret.
SQL_PARAMETERS = (
    "application_name",
    "channel_binding",
    "connect_timeout",
    "gssencmode",
    "require_auth",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslrootcert",
    "target_session_attrs",
)
_PARAMETER = f"(sslmode=({'|'.join(_MODES)})|({'|'.join(SQL_PARAMETERS)})=[^?&#]*)"

OAUTH_SERVER = "oauth2-server-uri"
PLAINTEXT = (
    "would carry credentials without encryption: use https://, also for oauth2-server-uri, or set "
    "spec.catalog.allowPlaintextCredentials on a trusted network"
)


def sends_plaintext(uri: str, properties: Mapping[str, str]) -> bool:
    """Return whether a Rest catalog gets its credentials over http."""
    return any(address.lower().startswith("http:") for address in (uri, properties.get(OAUTH_SERVER, "")))


@dataclass(frozen=True, kw_only=True)
class UriRule:
    """Every address of a catalog of ``type`` matches ``pattern``, in the syntax that CEL and Python share."""

    type: CatalogType
    pattern: str
    message: str

    def holds(self, catalog_type: CatalogType, uri: str) -> bool:
        """Return whether the address keeps the rule."""
        return catalog_type is not self.type or re.search(self.pattern, uri) is not None


URI_RULES = (
    UriRule(
        type=CatalogType.REST,
        pattern="^https?://[^/?#@]+(/[^?#]*)?$",
        message="catalog.uri of a Rest catalog must be its http:// or https:// address, without user, password or "
        f"parameters: put credentials into {SECRET}",
    ),
    UriRule(
        type=CatalogType.SQL,
        pattern="^([^@]*|[^:@]*://[^:@]*@[^@]*)$",
        message=f"catalog.uri may not contain a password: put it into {SECRET}",
    ),
    UriRule(
        type=CatalogType.SQL,
        pattern=f"^([^?#]*|postgresql[^?#]*[?]{_PARAMETER}(&{_PARAMETER})*)$",
        message=f"catalog.uri has a parameter that is not allowed: PostgreSQL takes sslmode ({', '.join(_MODES)}), "
        f"{', '.join(SQL_PARAMETERS)}, SQLite takes none; put credentials into {SECRET}",
    ),
)


def find_uri_problem(catalog_type: CatalogType, uri: str) -> str | None:
    """Return the fault of an address, as a sentence without the field's name; None when there is none."""
    broken = next((rule for rule in URI_RULES if not rule.holds(catalog_type, uri)), None)
    return broken.message.removeprefix("catalog.uri ") if broken else None
