"""The grammar of predicates and expressions: syntax trees, parser, literals, paths, and what their parts mean."""
