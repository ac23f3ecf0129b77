"""Kept drivers of a Warehouse: how many there are, which are replaced, and what becomes of runs whose driver is gone.

Called by the Warehouse's decider. Must not know what a run does.
"""
