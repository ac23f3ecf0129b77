"""Structural schemas of CRDs: what is pruned, defaulted and refused, with Kubernetes' sentences. Pure."""
