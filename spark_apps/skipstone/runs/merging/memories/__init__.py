"""What a table remembers of a feed: its columns over time, and which of its files are merged once more."""
