"""Skipstone on one machine, without a cluster: an API server, a runner of pods and the operator in one process."""
