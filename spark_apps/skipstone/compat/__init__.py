"""What we use of PyIceberg, PySpark and the JVM of Spark although it is private to them: a room for each of them, and
tests that name it all.

Everything else in the data plane uses public names only. Must not decide anything.
"""
