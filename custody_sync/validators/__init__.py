"""Ready-made validators: redact what must not be kept, refuse what must not be written.

A validator is any `async (fact, view) -> fact`; these cover the two most common wishes.
"""

from __future__ import annotations

from custody_sync.validators.patterns import redact, refuse

__all__ = ["redact", "refuse"]
