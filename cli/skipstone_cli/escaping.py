"""Text from a cluster made safe for a terminal: nothing in it moves the cursor, changes colors or hides other text.

Pure. Whoever prints text from the API server passes it through here.
"""

from __future__ import annotations

import re

#: Control characters but tab and newline, lone surrogates, separators that some terminals take for newlines, and the
#: characters that turn the direction of writing around or are not seen.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
_BREAKS = re.compile(r"[\t\n]+")


def clean(text: str) -> str:
    """``text`` with unsafe characters as escapes, such as ``\\x1b``; tabs and newlines stay."""
    return _UNSAFE.sub(_escaped, text)


def clean_line(text: str) -> str:
    """``text`` as ``clean`` makes it, on one line."""
    return _BREAKS.sub(" ", clean(text)).strip()


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
