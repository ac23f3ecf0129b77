"""Tables as plans need them: their metadata decoded once, and a FileIO with the server's own credentials."""
