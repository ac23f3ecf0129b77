"""What a query is about, told by the JVM in one call: Java that Spark's own compiler makes a class of."""
