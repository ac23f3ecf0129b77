"""What this machine has in the place of the data plane's image: an interpreter, variables, libraries, authorities."""
