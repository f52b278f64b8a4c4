"""Which writing system a text is in: one word for a whole text."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

SCRIPTS = (
    *("latin", "greek", "cyrillic", "hebrew", "arabic", "indic", "thai"),
    *("kana", "hangul", "han", "other", "none"),
)
"""``other``: letters of none of these; ``none``: no letter at all."""

MAX_CHARACTERS = 128
"""Looked at, from the end of a text."""
LATIN_SHARE = 0.9
"""Latin letters that make a text Latin: text in any other script holds names, code and the
words of the chat template."""

# Where blocks of letters begin (Unicode 16, Blocks.txt), neighbours of one script joined.
_STARTS, _NAMES = zip(
    *(
        (0x0000, "latin"),
        (0x0370, "greek"),
        (0x0400, "cyrillic"),
        (0x0530, "other"),
        (0x0590, "hebrew"),
        (0x0600, "arabic"),
        (0x07C0, "other"),
        (0x0900, "indic"),
        (0x0E00, "thai"),
        (0x0E80, "other"),
        (0x1100, "hangul"),
        (0x1200, "other"),
        (0x1E00, "latin"),
        (0x1F00, "greek"),
        (0x2000, "other"),
        (0x3040, "kana"),
        (0x3100, "other"),
        (0x3130, "hangul"),
        (0x3190, "other"),
        (0x3400, "han"),
        (0xA000, "other"),
        (0xAC00, "hangul"),
        (0xD7B0, "other"),
        (0xF900, "han"),
        (0xFB00, "latin"),
        (0xFB07, "other"),
        (0xFB50, "arabic"),
        (0xFE00, "other"),
        (0xFF21, "latin"),
        (0xFF66, "kana"),
        (0xFFA0, "other"),
        (0x20000, "han"),
        (0x32000, "other"),
    ),
    strict=True,
)


def script_of(text: str) -> str:
    """The script of most letters, from ``SCRIPTS``; Latin only where hardly any is another's."""
    tail = text[-MAX_CHARACTERS:]
    letters = [character for character in tail if character.isalpha()]
    if not letters:
        return "none"
    if tail.isascii():
        return "latin"
    found = Counter(_NAMES[bisect_right(_STARTS, ord(letter)) - 1] for letter in letters)
    if found["latin"] >= LATIN_SHARE * len(letters):
        return "latin"
    del found["latin"]
    return str(found.most_common(1)[0][0])
