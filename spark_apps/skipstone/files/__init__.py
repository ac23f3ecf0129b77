"""Data files in and out: Parquet written, spliced and read, ORC read, delete files applied and written.

Runs inside Spark tasks or without Spark. Must not know merges, indexes or runs, nor commit what it writes.
"""
