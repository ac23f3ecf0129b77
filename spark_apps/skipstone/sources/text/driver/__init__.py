"""Csv and Json read in the driver, without Spark: the same cells, and what is left to Spark."""
