"""As whom tests ask an API server themselves: as the administrator, of a real one or of `skipstone local`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.cluster.controlplane import ControlPlane
from tests.kube.localplane import LocalPlane


@dataclass(frozen=True)
class Access:
    """What a connection and its requests carry."""

    tls: ssl.SSLContext
    headers: Mapping[str, str] = field(default_factory=dict)


def admin_access(plane: ControlPlane | LocalPlane) -> Access:
    """The administrator's client certificate, as the control plane made it, or the token of the local server."""
    context = ssl.create_default_context(cafile=str(plane.ca))
    if isinstance(plane, LocalPlane):
        return Access(context, {"Authorization": f"Bearer {plane.token}"})
    context.load_cert_chain(plane.state.pki / "admin.crt", plane.state.pki / "admin.key")
    return Access(context)
