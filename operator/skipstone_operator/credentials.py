"""How to reach the API server, as plain data: from our own client's configuration to kopf's.

Made by the adapter, read by the watch. Data only, so that neither room needs the other's library.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """``token`` is without its scheme; paths are files on the local disk."""

    server: str
    ca_path: str | None
    insecure: bool
    token: str | None
    certificate_path: str | None
    key_path: str | None
