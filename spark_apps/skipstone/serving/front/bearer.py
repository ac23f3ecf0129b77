"""Who may ask the front of an Sql catalog: whoever brings one of the tokens that its Warehouse names.

Must not know what is asked.
"""

from __future__ import annotations

import hmac
from typing import Final

from starlette.requests import Request

from skipstone.serving.answers import UNAUTHORIZED, Refused

_SCHEME: Final = "bearer"
#: Shorter tokens could be guessed.
SHORTEST_TOKEN: Final = 16


def require_bearer(request: Request, tokens: tuple[str, ...]) -> None:
    """Raise Refused (401) unless ``request`` carries one of ``tokens``. All are compared, each in constant time."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    brought = given.strip().encode()
    same = [hmac.compare_digest(brought, token.encode()) for token in tokens]
    if scheme.lower() != _SCHEME or not any(same):
        message = (
            "the request carries no token that this Warehouse knows: set the catalog's property token to one of "
            "the Secret in spec.planning.tokensSecretRef"
        )
        raise Refused(401, UNAUTHORIZED, message, headers={"www-authenticate": "Bearer"}, outcome="denied")
