"""Imports all that runs in kept drivers use, also what libraries look for only when they need it.

Imported by the app of kept drivers before it forks: the process of each run imports what is missing here again.
"""

from __future__ import annotations

from importlib import import_module

MODULES = (
    # Arrow asks it about each array of NumPy.
    "numpy.ma",
    "pyarrow.fs",
    "pyiceberg.avro.decoder_fast",
    # Catalogs in databases.
    "psycopg2.extras",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    # Marks at the beginning of texts.
    "encodings.utf_8_sig",
    "encodings.utf_16_be",
    "skipstone.ending",
    "skipstone.runs.load",
    "skipstone.runs.main",
    "skipstone.runs.merging.merge",
)

for name in MODULES:
    import_module(name)
