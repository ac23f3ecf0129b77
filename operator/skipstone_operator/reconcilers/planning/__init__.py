"""The planning server of a Warehouse: which object is written next, and what the Warehouse says of it.

Called by the decider of Warehouses. Pure: no API, clock or randomness.
"""
