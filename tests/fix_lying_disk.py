"""What a disk has kept of the writes of a process, when it was honest and when it lied about a sync."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "faults" / "lying_disk.c"
SECTOR, PAGE = 512, 4096
LAST = 50
"""How many writes back a page may be torn that was said to be synced."""
ACKNOWLEDGED = "acknowledged"
"""The file into which a process says what it was told is durable, in the order of its writes."""


@dataclass(frozen=True, slots=True)
class Op:
    """One change of one file: a name, a write, a cut, a sync, a renaming or a removal."""

    what: str
    number: int
    at: int
    data: bytes


def compiled(folder: Path) -> Path:
    """Compile what writes down a process's writes, where that can be done."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or os.uname().sysname != "Linux":
        pytest.skip("needs Linux and a C compiler: sqlite3 of Python takes no file system of one's own")
    made = folder / "lying_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl", "-lpthread"], check=True)
    return made


def read_journal(path: Path) -> list[Op]:
    """Return what was written down, in its order."""
    data, ops, place = path.read_bytes(), [], 0
    while place < len(data):
        number, at, size = struct.unpack_from("<QQQ", data, place + 1)
        begin = place + 25
        ops.append(Op(chr(data[place]), number, at, data[begin : begin + size]))
        place = begin + size
    return ops


@dataclass
class Disk:
    """Files by number and their names, after some operations."""

    files: dict[int, bytearray] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    @classmethod
    def after(cls, ops: Iterable[Op]) -> Disk:
        """Return a disk on which some operations came to pass."""
        disk = cls()
        for op in ops:
            disk.take(op)
        return disk

    def take(self, op: Op) -> None:
        """Let one operation come to pass."""
        if op.what in "nr":
            if op.what == "n" and op.number not in self.names.values():
                # The number of a file that is gone is given to a new one.
                self.files[op.number] = bytearray()
            self.names[op.data.decode()] = op.number
        elif op.what == "u":
            self.names.pop(op.data.decode(), None)
        elif op.what == "t":
            file = self.files.setdefault(op.number, bytearray())
            del file[op.at :]
            file.extend(bytes(op.at - len(file)))
        elif op.what == "w":
            file = self.files.setdefault(op.number, bytearray())
            file.extend(bytes(max(0, op.at - len(file))))
            file[op.at : op.at + len(op.data)] = op.data

    def put(self, folder: Path) -> None:
        """Write the ledger's files into a folder; the index that SQLite maps into memory is made anew."""
        for path, number in self.names.items():
            name = Path(path).name
            if number in self.files and name != ACKNOWLEDGED and not name.endswith("-shm"):
                (folder / name).write_bytes(self.files[number])

    def acknowledged(self) -> int:
        """Return the last head that the process was told of."""
        for path, number in self.names.items():
            if Path(path).name == ACKNOWLEDGED:
                return int(self.files[number].split()[-1])
        return 0


def syncs(ops: Sequence[Op]) -> list[int]:
    """Return the places right behind the syncs."""
    return [place + 1 for place, op in enumerate(ops) if op.what == "s"]


def honest(ops: Sequence[Op], end: int, rng: random.Random) -> Disk:
    """Cut the power: what was synced is there, of the rest any write, or as many of its sectors."""
    last = {op.number: place for place, op in enumerate(ops[:end]) if op.what == "s"}
    return Disk.after(_kept(ops[:end], last, rng))


def _kept(ops: Sequence[Op], last: dict[int, int], rng: random.Random) -> Iterator[Op]:
    for place, op in enumerate(ops):
        if op.what != "w" or place < last.get(op.number, -1) or rng.random() < 0.4:
            yield op
        elif rng.random() < 0.5:
            yield Op(op.what, op.number, op.at, op.data[: rng.randrange(len(op.data) // SECTOR + 1) * SECTOR])


def forgotten(ops: Sequence[Op], end: int, back: int) -> Disk:
    """Drop everything that was written since the last but so many syncs, which had all been answered."""
    places = [0, *(place for place in syncs(ops) if place <= end)]
    return Disk.after(ops[: places[max(0, len(places) - 1 - back)]])


def scattered(ops: Sequence[Op], end: int, rng: random.Random) -> Disk:
    """Drop of each file what was written since one of its own last syncs."""
    until: dict[int, int] = {}
    for number in {op.number for op in ops[:end]}:
        places = [place for place, op in enumerate(ops[:end]) if op.what == "s" and op.number == number]
        until[number] = rng.choice([end, *places[-4:]])
    return Disk.after(
        op for place, op in enumerate(ops[:end]) if op.what in "nru" or place <= until[op.number]
    )


def torn(ops: Sequence[Op], end: int, rng: random.Random) -> Disk:
    """Spoil some of the pages that were written last: the half of one, or all of it."""
    disk, written = Disk.after(ops[:end]), [op for op in ops[:end] if op.what == "w" and len(op.data) > 100]
    for op in rng.sample(written[-LAST:], rng.randint(1, 4)):
        file = disk.files[op.number]
        begin = op.at + rng.choice([0, min(PAGE, len(op.data)) // 2])
        stop = min(op.at + len(op.data), len(file))
        file[begin:stop] = bytes(max(0, stop - begin))
    return disk
