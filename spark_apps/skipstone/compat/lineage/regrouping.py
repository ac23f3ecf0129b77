"""Manifests of tables in format version 3, written again: their entries keep the row ids of files.

Used by the rewriting of manifests only. Must not decide which manifests are written again.
"""

from __future__ import annotations

from skipstone.compat.lineage.writing import LineageDelta
from skipstone.compat.manifestrewrite import ManifestRewrite


class LineageManifestRewrite(ManifestRewrite, LineageDelta):
    """As ``ManifestRewrite``. The manifests that it is given have the row ids that ``read_manifests`` gives."""
