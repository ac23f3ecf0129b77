"""Who asks: whoever has the server's token, or one that the server gave an account, maybe bound to a pod."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import asdict, dataclass

from skipstone_local.server.answers.refusals import Refusal, unauthorized
from skipstone_local.server.requests.calls import ApiTarget

PREFIX = "account."
OWNER = "local"
#: What the holder of a token that is bound to a pod may do, to this pod alone.
BOUND_METHODS = ("GET", "PATCH")


@dataclass(frozen=True)
class Identity:
    """Who asks. With ``pod`` nothing but this pod of ``namespace`` can be reached."""

    user: str
    namespace: str = ""
    pod: str = ""


def issue(secret: str, identity: Identity) -> str:
    """A token that says who its holder is, sealed with the server's own."""
    payload = base64.urlsafe_b64encode(json.dumps(asdict(identity), sort_keys=True).encode()).decode()
    return f"{PREFIX}{payload}.{_seal(secret, payload)}"


def read_authorization(secret: str, header: str) -> Identity:
    """Who sent a request with this header. Raises Refusal."""
    scheme, _, given = header.partition(" ")
    given = given.strip()
    if scheme.lower() != "bearer":
        raise unauthorized()
    if hmac.compare_digest(given.encode(), secret.encode()):
        return Identity(OWNER)
    payload, _, seal = given.removeprefix(PREFIX).partition(".")
    if not given.startswith(PREFIX) or not hmac.compare_digest(seal.encode(), _seal(secret, payload).encode()):
        raise unauthorized()
    return Identity(**json.loads(base64.urlsafe_b64decode(payload)))


def check_reach(identity: Identity, method: str, target: ApiTarget | None) -> None:
    """Raise Refusal when a token that is bound to a pod is used for something else."""
    if not identity.pod:
        return
    bound = (identity.namespace, identity.pod, "pods")
    is_own = target is not None and (target.namespace, target.name, target.kind.resource) == bound
    if not is_own or method not in BOUND_METHODS:
        raise Refusal(403, "Forbidden", f"{identity.user} may get and patch the pod {identity.pod} only")


def _seal(secret: str, payload: str) -> str:
    return hmac.new(secret.encode(), payload.encode(), hashlib.sha256).hexdigest()
