"""The outside world: the API server and the clock, behind the Protocols of ``ports`` and ``runtime``.

Imported by ``__main__`` only. The one room that knows the Kubernetes client.
"""
