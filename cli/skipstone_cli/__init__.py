"""The command line of Skipstone: ``skipstone``, which kubectl runs as ``kubectl skipstone`` too.

Reads Skipstone's resources through the API server and shows what they do and why. Must not open a table or import the
operator or the data plane.
"""

__version__ = "0.1.0"
