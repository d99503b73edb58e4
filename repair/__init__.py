"""After an outage: find what the stores hold and the ledger does not stand behind, and remove it."""

from __future__ import annotations

from custody_sync.repair.adoption import Adoption
from custody_sync.repair.sweep import Sweep
from custody_sync.repair.verify import Verifying

__all__ = ["Adoption", "Sweep", "Verifying"]
