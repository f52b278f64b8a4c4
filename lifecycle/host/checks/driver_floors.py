"""Which driver a CUDA version needs at least, as data (L7).

Source: CUDA Toolkit release notes, table "CUDA Toolkit and Minimum Required Driver Version
for CUDA Minor Version Compatibility", and the table of the drivers that each toolkit ships.
"""

from __future__ import annotations

MINOR_COMPATIBILITY = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580,)}
"""By CUDA major: any toolkit of that major runs on such a driver."""

SHIPPED_WITH = {
    (11, 8): (520, 61, 5),
    (12, 0): (525, 60, 13),
    (12, 1): (530, 30, 2),
    (12, 2): (535, 54, 3),
    (12, 3): (545, 23, 6),
    (12, 4): (550, 54, 14),
    (12, 5): (555, 42, 2),
    (12, 6): (560, 28, 3),
    (12, 8): (570, 26),
    (12, 9): (575, 51, 3),
    (13, 0): (580, 65, 6),
}
"""The driver in each toolkit's own installer: with an older one of the same major, PTX that
this toolkit compiled can't be compiled further by the driver."""
