"""What a catalog's answer proves: that a table is absent, that a commit was refused, that a list is the whole one."""
