"""The project's own single-node Kubernetes, for tests and demonstrations on a machine without a cluster.

Command line: `python3 -m tests.cluster --help` (standard library only). Tests call `tests.cluster.controlplane`.
It must not be imported by the product.
"""
