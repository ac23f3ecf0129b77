"""The CRDs that this package carries: a copy that `make generate` writes."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from skipstone_local.admission.failures import JsonObject


@cache
def load_definitions() -> tuple[JsonObject, ...]:
    """Return the CustomResourceDefinitions of Skipstone. They are shared: do not change them."""
    text = files("skipstone_local.admission").joinpath("definitions.json").read_text(encoding="utf-8")
    return tuple(json.loads(text))
