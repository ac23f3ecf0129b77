"""The predicate grammar: its syntax tree, parser, literals, and the meaning of a predicate."""
