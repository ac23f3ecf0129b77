"""What a Table asks of its maintenance, and what its status tells of it, as types.

Imported by the Table and by reconcilers. Must not know when anything is due: the core decides that.
"""
