"""Judges objects as an API server does: schemas, rules in CEL, names, sizes; nothing is stored here."""
