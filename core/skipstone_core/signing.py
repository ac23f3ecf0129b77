"""Signed requests to a Rest catalog: the settings of SigV4 and what they need.

Used by the rules of the Warehouse and by the data plane before it connects. Must not know keys.
"""

from __future__ import annotations

from collections.abc import Mapping

ENABLED, SERVICE, REGION = "rest.sigv4-enabled", "rest.signing-name", "rest.signing-region"
PROPERTIES_FIELD = "catalog.properties"
MISSING_REGION = f"needs {REGION} when {ENABLED} is true: set the region of the catalog, such as eu-central-1"


def is_signed(properties: Mapping[str, str]) -> bool:
    """Return whether requests to the catalog are signed."""
    return properties.get(ENABLED, "").lower() == "true"


def has_region(properties: Mapping[str, str]) -> bool:
    """Return whether the settings name the region that a signature is for, if requests are signed."""
    return not is_signed(properties) or bool(properties.get(REGION))
