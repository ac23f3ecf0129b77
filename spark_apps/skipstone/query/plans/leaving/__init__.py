"""Queries that gain nothing, told by what is remembered of their tables, before anything of a plan is copied."""
