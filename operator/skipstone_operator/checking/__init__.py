"""What `helm test` runs: whether the cluster is as this version of the operator needs it."""
