"""A kept driver: takes the runs of one Warehouse one after the other, each in a process that is forked for it."""
