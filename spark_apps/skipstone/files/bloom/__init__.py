"""Bloom filters of Parquet column chunks: what writers ask of them, and what they say of keys."""
