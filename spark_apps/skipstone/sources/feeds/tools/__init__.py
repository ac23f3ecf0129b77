"""A module for each change format or a few alike: ``feeds.registry`` finds it because it is here."""
