"""Which files the metadata of a table reaches, which of them are its own, and which other tables use them."""
