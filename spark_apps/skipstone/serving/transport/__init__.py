"""How requests come in and answers go out: limits of size and time, and the access log."""
