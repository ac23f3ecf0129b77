"""Runs of every kind: what each is asked to do, how it is launched and followed, and how a status shows it.

Called by the deciders of all kinds. Must not know a kind's policy. Pure: what comes out is a step.
"""
