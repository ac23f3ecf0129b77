"""What a table remembers: transactions, the history of its head, and the files that consumers took."""
