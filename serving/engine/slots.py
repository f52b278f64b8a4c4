"""Which slot of the KV pool belongs to whom: book-keeping only, no tensors."""

from __future__ import annotations


class SlotPool:
    """``count`` slots of ``length`` tokens each.

    A sequence holds one slot from its first prefill step to its end, so a running
    sequence can never run out of room: the worst case is reserved at admission.
    """

    def __init__(self, count: int, length: int) -> None:
        self.count = count
        self.length = length
        # The last freed slot is taken first: its memory is the warmest.
        self._free = list(range(count - 1, -1, -1))
        self._held: set[int] = set()

    def take(self) -> int | None:
        """A free slot, now held; None when all are held."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._held.add(slot)
        return slot

    def give_back(self, slot: int) -> None:
        """Free a held slot.

        Raises:
            KeyError: the slot was not held.
        """
        self._held.remove(slot)
        self._free.append(slot)

    @property
    def free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    def problems(self, in_use: list[int]) -> list[str]:
        """What contradicts the law "free + held = all, and the held are those in use"."""
        found = []
        if sorted([*self._free, *self._held]) != list(range(self.count)):
            found.append(f"{len(self._free)} free + {len(self._held)} held ≠ {self.count} slots")
        if sorted(in_use) != sorted(self._held):
            found.append(f"{len(self._held)} slots are held, {len(in_use)} are in use")
        return found
