"""What a process has open."""

from __future__ import annotations

import os
from pathlib import Path


def descriptors_of(path: Path) -> int:
    """Count this process's descriptors of a file."""
    wanted, found = path.stat().st_ino, 0
    for name in os.listdir("/dev/fd"):
        try:
            found += os.fstat(int(name)).st_ino == wanted
        except OSError:
            continue
    return found
