"""Changes of a feed that cannot be applied: told apart from the others, with what must wait for them."""
