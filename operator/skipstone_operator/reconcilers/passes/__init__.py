"""The two ends of a pass: reading the world before a decision, and writing the step that was decided.

Called by ``entry``, ``cachedpass`` and ``turns``; deciders take only ``failures`` from here. Must not decide for a
kind.
"""
