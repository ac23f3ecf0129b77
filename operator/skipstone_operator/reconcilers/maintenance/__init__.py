"""What a Table's maintenance needs now, how healthy that makes it, and what the end of a maintain run means.

Called by the decider of maintain runs and by the status of the Table. Pure.
"""
