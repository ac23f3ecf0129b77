"""The shape of a table: its declaration, its schema and how it evolves, and how its files are written."""
