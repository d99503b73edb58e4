"""How much is tried: a part by default, all of the fault lab, or everything."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
LAB = FULL or bool(os.environ.get("CUSTODY_SYNC_LAB"))
"""What the figures of docs/reliability.md are of; CI has no time for it."""
