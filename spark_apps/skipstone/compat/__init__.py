"""What we use of PyIceberg and PySpark although it is private to them: one module each, and a test that names it all.

Everything else in the data plane uses public names only. Must not decide anything.
"""
