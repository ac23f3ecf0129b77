"""Commits: plan, write, validate, swap, discard; each transaction at most once, and its outcome proven."""
