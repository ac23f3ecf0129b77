"""Types of columns that Skipstone, or an engine beside it, does not read or make.

Every plane names them by these words. Must not know schemas.
"""

from __future__ import annotations

from typing import Final

#: Types whose values are moved as they are, by the words that their names begin with; none is made or compared.
OPAQUE: Final = ("variant", "geometry", "geography", "unknown")
#: What is said of a column of such a type.
MOVED_ONLY: Final = "Skipstone moves its values as they are and makes none"


def is_opaque(type_name: str) -> bool:
    """Whether a column of this Iceberg type holds values that are moved as they are."""
    return type_name.strip().lower().partition("(")[0] in OPAQUE
