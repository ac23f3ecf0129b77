"""Faults between the operator and a real API server: a proxy that counts writes, a simulated kubelet, real commits."""
