"""Rows of the source as tasks hold them: long texts once each, or in a file of this machine."""
