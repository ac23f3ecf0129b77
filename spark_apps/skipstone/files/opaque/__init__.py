"""Columns of types that are moved as they are: how Parquet files hold them."""
