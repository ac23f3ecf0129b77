"""Small sides of joins, which run first, and the keys that they give to the relations on the other sides."""
