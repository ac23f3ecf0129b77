"""Avro object container files: their schema, their blocks, and their records as Arrow batches."""
