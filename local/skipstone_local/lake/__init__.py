"""``skipstone.open``: tables without manifests. Each call applies an object and waits until it is settled."""

from skipstone_local.lake.lakes import Lake
from skipstone_local.lake.opening import open_lake
from skipstone_local.lake.results import LakeIndex, LakeLoad, LakeMerge, LakeTable
from skipstone_local.lake.sources import LakeDelta, LakeFolders, LakeRows

__all__ = [
    "Lake", "LakeDelta", "LakeFolders", "LakeIndex", "LakeLoad", "LakeMerge", "LakeRows", "LakeTable", "open_lake",
]  # fmt: skip
