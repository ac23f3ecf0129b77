"""The rules of maintenance: what is asked of it, how a table is, and what is due."""
