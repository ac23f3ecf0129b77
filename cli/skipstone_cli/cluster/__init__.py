"""The API server: where it is, one request at a time, and what is read and written there.

The one room that knows the Kubernetes client and the kubeconfig.
"""
