"""What is measured of resources: numbers read off each object as it is seen, put together when somebody asks.

Called by ``metrics`` and ``feed``. Reads objects only; must not decide, and must not know the API server.
"""
