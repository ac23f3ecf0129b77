"""Speaks Kubernetes' protocol over HTTP on loopback: verbs, selectors, patches, discovery, watches, deletion."""
