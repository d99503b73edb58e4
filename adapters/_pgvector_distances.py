"""What pgvector calls the distances: operator, class of an index, and a score that is higher when nearer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from custody_sync.adapters._pgvector_vectors import Distance, VectorType
from custody_sync.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Measure:
    """How near two vectors are, in pgvector's words."""

    operator: str
    score: str
    """SQL that makes a score of `{0}`, the distance."""
    suffix: str

    def ops(self, kind: VectorType) -> str:
        """Return the operator class that an index on such a column has."""
        return f"{kind}_{self.suffix}_ops"


MEASURES: Final[Mapping[str, Measure]] = {
    "cosine": Measure("<=>", "1 - ({0})", "cosine"),
    "l2": Measure("<->", "-({0})", "l2"),
    # pgvector's operator is the negative inner product, so that less is nearer.
    "inner_product": Measure("<#>", "-({0})", "ip"),
}


def measure_of(distance: Distance) -> Measure:
    """Return how a distance is measured, or refuse one that is none."""
    if distance not in MEASURES:
        raise InvalidInput(field="distance", problem=f"{distance!r} is none of {', '.join(MEASURES)}")
    return MEASURES[distance]
