"""Which placements a listing showed: one bit each, so that ten million of them are a few megabytes."""

from __future__ import annotations

from collections.abc import Iterable

from custody_sync.ledger.rows import MAX_PLACEMENTS

_NTH_BITS = MAX_PLACEMENTS.bit_length() - 1
_NTH = MAX_PLACEMENTS - 1
_BLOCK_BITS = 16
_AT = (1 << _BLOCK_BITS) - 1
_BLOCK = (1 << _BLOCK_BITS) // 8


class Marks:
    """A set of places in the log, as `Compared` and `Held` have them.

    A place is that of its event and which of the event's placements it is. A block has the bits of
    neighbouring events, and only blocks that have one are kept.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}
        self.count = 0
        """How many places are marked."""

    def add(self, places: Iterable[int]) -> None:
        """Mark places; one that is marked already stays so."""
        blocks = self._blocks
        for place in places:
            event = place >> _NTH_BITS
            key = (event >> _BLOCK_BITS) << _NTH_BITS | (place & _NTH)
            block = blocks.get(key)
            if block is None:
                block = blocks[key] = bytearray(_BLOCK)
            at, bit = (event & _AT) >> 3, 1 << (event & 7)
            if not block[at] & bit:
                block[at] |= bit
                self.count += 1

    def __contains__(self, place: int) -> bool:
        event = place >> _NTH_BITS
        block = self._blocks.get((event >> _BLOCK_BITS) << _NTH_BITS | (place & _NTH))
        return block is not None and bool(block[(event & _AT) >> 3] & 1 << (event & 7))


def event_of(place: int) -> int:
    """Return the place in the log of the event that a placement was put on record with."""
    return place >> _NTH_BITS


__all__ = ["Marks", "event_of"]
