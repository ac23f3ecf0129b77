"""Speaks Kubernetes' protocol over HTTP on loopback: verbs, selectors, patches, discovery, watches, deletion."""

from skipstone_local.server.app import build_app
from skipstone_local.server.opening import AlreadyServed, NotServed, opened, serve, serving

__all__ = ["AlreadyServed", "NotServed", "build_app", "opened", "serve", "serving"]
