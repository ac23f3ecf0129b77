"""Csv and Json: options, headers, and text as values of Iceberg types."""
