"""What a Spark plan says: its relations, how each is used, and its conditions as predicates of ours."""
