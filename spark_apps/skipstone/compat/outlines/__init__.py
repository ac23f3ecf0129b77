"""What a query is about, and what it makes of few rows, by classes that the JVM of a session compiles."""
