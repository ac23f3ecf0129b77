"""Reading tables through their lookup indexes: what notebook users and runs call.

Must not know how an index is built or stored: that is the room ``indexes``.
"""
