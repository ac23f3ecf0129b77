"""Charts in HTML and SVG: each draws numbers of statuses and brings them as a table too.

Called by sections. A chart never rounds a number that it writes, and never tells things apart by color alone.
"""
