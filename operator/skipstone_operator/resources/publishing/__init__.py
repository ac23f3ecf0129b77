"""Files made from the typed kinds: CRDs, the chart's copies, the field reference.

Called by ``make generate``; the operator does not need this room at run time.
"""
