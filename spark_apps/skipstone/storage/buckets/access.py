"""Which certificates object stores are trusted by."""

from __future__ import annotations

import os

#: Names a file with the certificates of authorities that are trusted besides the system's.
CA_VARIABLE = "SKIPSTONE_CA_BUNDLE"


def ca_file() -> str:
    """The file with the certificates of all authorities that are trusted; empty for the system's.

    The image's entrypoint makes it of the system's and those that the Warehouse adds.
    """
    return os.environ.get("SSL_CERT_FILE", "") if os.environ.get(CA_VARIABLE) else ""
