"""The merge run: its source, the files that a source key can touch, and their rewriting."""
