"""The server that plans scans by Iceberg's REST protocol: HTTP, forwarding, tokens of pages, limits, metrics.

It only reads. Must not judge a file: which files a plan holds is ``query``'s to say.
"""
