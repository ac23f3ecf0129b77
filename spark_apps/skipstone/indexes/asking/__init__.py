"""Asks indexes: what a condition or many keys hit, and what reading an index to learn it costs."""
