"""What the fields of every kind are made of: words for schemas, limits, and how a value is judged by them.

Imported by the kinds, by re-validation and by ``publishing``. Knows no kind.
"""
