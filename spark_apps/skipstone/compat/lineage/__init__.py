"""Format version 3 where PyIceberg knows it in part: manifests, snapshots and metadata with the ids of rows."""
