"""Sections of the page: which objects are shown, in which order, how many, and how many are not.

Called by the page. Each section holds at most a fixed number of objects, so that the page stays small.
"""
