"""The form of a query as joins: the columns by which relations are joined, and what ran first of it."""
