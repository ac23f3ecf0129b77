"""Avro: object container files block by block, and data files of tables that are in it."""
