"""The maintain run: steps that keep a table as its policy asks, each in commits of its own."""
