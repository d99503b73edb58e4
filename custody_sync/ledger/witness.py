"""The witness: the ledger's last known head, in a file away from the ledger's folder.

A chain alone cannot show that its end is missing: a ledger put back to yesterday's copy is intact.
So the head is kept a second time, where a copy of the ledger's folder does not reach. It only goes
forwards, and only along the history that it has seen: a ledger that lost events cannot overtake it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from custody_sync.canonical import canonical
from custody_sync.errors import ClosedError, CustodyError, InvalidInput
from custody_sync.ledger.storage import Storage
from custody_sync.model import Head, format_instant, read_instant
from custody_sync.runtime import Runtime

VARIABLE = "CUSTODY_SYNC_WITNESS"
PAUSE = 1.0
"""Seconds between an append and the witness of it; what is appended meanwhile costs nothing more."""
TRIES, WAIT = 50, 0.02
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_DIGEST = re.compile("[0-9a-f]{64}")

T = TypeVar("T")


def witness_folder(
    chosen: os.PathLike[str] | str | bool | None,
    environ: Mapping[str, str] = os.environ,
    platform: str = sys.platform,
) -> Path | None:
    """Return where witnesses are kept: as chosen, as CUSTODY_SYNC_WITNESS says, or the user's state folder.

    None where no witness is wanted (`False`, or `off` in the variable).
    """
    if chosen is False:
        return None
    if chosen is not None and not isinstance(chosen, bool):
        return Path(chosen).absolute()
    named = environ.get(VARIABLE, "")
    if named:
        return None if named == "off" else Path(named).absolute()
    home = environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~")
    if platform == "darwin":
        state = Path(home, "Library", "Application Support")
    elif platform == "win32":
        state = Path(environ.get("LOCALAPPDATA") or Path(home, "AppData", "Local"))
    else:
        # A relative value is to be ignored, says the XDG specification.
        given = Path(environ.get("XDG_STATE_HOME", ""))
        state = given if given.is_absolute() else Path(home, ".local", "state")
    return state / "custody-sync" / "witness"


def head_line(ledger_id: str, head: Head) -> str:
    """Return a head as one line to keep elsewhere."""
    time = None if head.tx_time is None else format_instant(head.tx_time)
    document = {
        "count": head.seq,
        "hash": head.hash,
        "ledger_id": ledger_id,
        "seq": head.seq,
        "tx_time": time,
    }
    return canonical(document).decode()


def read_head(document: object) -> tuple[str | None, Head]:
    """Read a head that was kept: what `ledger head` prints, or a document with one under `head`.

    Raises:
        ValueError: it is none.
    """
    found = document if isinstance(document, Mapping) else {}
    ledger_id = found.get("ledger_id")
    if isinstance(found.get("head"), Mapping):
        found = found["head"]
    seq, digest, time = found.get("seq"), found.get("hash"), found.get("tx_time")
    if type(seq) is not int or seq < 0 or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError("head")
    return (ledger_id if isinstance(ledger_id, str) else None), Head(seq, read_instant(time), digest)


async def has(storage: Storage, head: Head) -> bool:
    """Tell whether a head is that of an event in a log."""
    if head.seq < 1:
        return False
    rows = await storage.events(1, head.seq - 1)
    return bool(rows) and (rows[0]["event"]["seq"], rows[0]["hash"]) == (head.seq, head.hash)


class Witness:
    """The witness of one open ledger.

    Appends tell it what they saw, which costs them nothing; a thread of its own writes the file.
    It fails nobody: what is wrong with it is one sentence in `problem`.

    Args:
        folder: where witnesses are kept; None for a ledger that has none.
        storage: the ledger.
        runtime: its threads and its sleep.
    """

    def __init__(self, folder: Path | None, storage: Storage, runtime: Runtime) -> None:
        self._storage, self._runtime = storage, runtime
        name = storage.ledger_id
        if not _NAME.fullmatch(name):
            name = hashlib.sha256(name.encode()).hexdigest()
        self._path = None if folder is None else folder / f"{name}.json"
        self._latest = Head(0, None, "")
        self._earlier: Head | None = None
        """What it saw before an event that is not behind it; concurrent appends may tell in any order."""
        self._known: Head | None = None
        """What the file kept when it was last found, or made, to be of its ledger's history."""
        self._foreign: Head | None = None
        """What it knows not to be."""
        self._settled = False
        self._armed: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._writing: set[asyncio.Task[None]] = set()
        self._executor: Executor | None = None
        self._process = os.getpid()
        self._closed = False
        self.problem: str | None = None

    @property
    def path(self) -> Path | None:
        """Where it is kept."""
        return self._path

    def saw(self, head: Head) -> None:
        """Take note of a committed event; the file follows within a second, and when the ledger is closed."""
        with self._lock:
            if head.seq > self._latest.seq:
                self._latest = head
            elif head == self._latest:
                return
            elif self._earlier is None:
                self._earlier = self._latest
            if self._armed is not None and not self._armed.is_closed():
                return
            self._armed = loop = asyncio.get_running_loop()
        loop.call_later(PAUSE, self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._armed = None
        if not self._closed:
            task = loop.create_task(self.flush())
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def flush(self) -> None:
        """Bring the file up to what was seen; never backwards, and never along another history."""
        if self._path is None or self._latest.seq == 0 or os.getpid() != self._process:
            return
        try:
            await self._forward(self._latest)
        except ClosedError:
            # Another handle moved it on after this ledger was closed: what it kept is as new.
            return
        except (OSError, RuntimeError, ValueError, CustodyError) as error:
            self.problem = f"the witness {self._path} was not written ({type(error).__name__})"

    async def _forward(self, mine: Head) -> None:
        for _ in range(TRIES):
            found = await self._run(self._read)
            if found is not None and found == self._foreign:
                return
            reached = found is not None and found.seq >= mine.seq
            # What was appended while the ledger closed follows what was asked for just before.
            settled = self._settled and found == self._known
            if reached and self._earlier is None:
                return
            if not settled and not await self._is_here(mine):
                return
            if reached:
                return
            # Even what it wrote itself may be gone by now: the ledger may have been put back meanwhile.
            if found is not None and not settled and not await self._is_ours(found):
                return
            if await self._run(self._swap, found, mine):
                self._known, self.problem = mine, None
                return
            await self._runtime.sleep(WAIT)
        self.problem = f"the witness {self._path} is locked by another process"

    async def _is_here(self, mine: Head) -> bool:
        """Tell whether what this handle saw is still there: its ledger may have been put back meanwhile."""
        earlier = self._earlier
        for head in (earlier, mine):
            if head is not None and not await has(self._storage, head):
                self.problem = (
                    f"event {head.seq}, which was appended here, is no longer in the ledger: it was put "
                    f"back or cut off, and the witness {self._path} stays as it is until it is opened again"
                )
                return False
        if self._earlier is earlier:
            self._earlier = None
        return True

    async def _is_ours(self, found: Head) -> bool:
        """Tell whether what the file keeps is of this ledger's history."""
        if await has(self._storage, found):
            return True
        self._foreign = found
        self.problem = f"the witness {self._path} has seen another event {found.seq} than is here"
        return False

    async def read(self) -> Head | None:
        """Return the head that the file keeps, or None; what is wrong with the file is in `problem`."""
        if self._path is None:
            return None
        try:
            return await self._run(self._read)
        except (OSError, RecursionError, ValueError) as error:
            self.problem = f"the witness {self._path} cannot be read ({type(error).__name__})"
            return None

    async def accept(self, head: Head) -> Path:
        """Let the file begin anew at a head, whatever it has seen before.

        Raises:
            InvalidInput: there is no witness, or it cannot be written.
        """
        if self._path is None:
            raise InvalidInput(field="witness", problem=f"is off; {VARIABLE} or Ledger.open says so")
        try:
            for _ in range(TRIES):
                if await self._run(self._swap, head, head, True):
                    self._latest = self._known = head
                    self._earlier = self._foreign = self.problem = None
                    return self._path
                await self._runtime.sleep(WAIT)
        except OSError as error:
            problem = f"{self._path} cannot be written ({type(error).__name__})"
            raise InvalidInput(field="witness", problem=problem) from None
        raise InvalidInput(field="witness", problem=f"{self._path} is locked by another process")

    async def settle(self) -> None:
        """Before the ledger is closed, make sure that what was seen and what the file keeps are of it."""
        if self._path is None or self._closed or self._latest.seq == 0 or os.getpid() != self._process:
            return
        try:
            # In place, as are brief questions: a close has to begin before anybody gets a turn.
            found, mine, known = self._read(), self._latest, self._known
            behind = found is None or found.seq < mine.seq
            if (behind or self._earlier is not None) and await self._is_here(mine):
                self._settled = found is None or not behind or await self._is_ours(found)
                if self._known == known:
                    # Else it was moved on meanwhile, by what was under way.
                    self._known = found
        except (OSError, RuntimeError, ValueError, CustodyError) as error:
            self.problem = f"the witness {self._path} was not written ({type(error).__name__})"

    async def close(self) -> None:
        """Write what was seen last, and let go of the thread; the ledger is closed by then."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        for task in [task for task in self._writing if task.get_loop() is loop]:
            await task
        await self.flush()
        if self._executor is not None:
            self._executor.shutdown(wait=False)

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        if self._executor is None:
            self._executor = self._runtime.executor("custody-witness")
        return await asyncio.wrap_future(self._executor.submit(work, *args))

    # --- the file, on a thread of its own ---------------------------------------------------

    def _read(self) -> Head | None:
        assert self._path is not None  # noqa: S101  # nothing comes here without a file
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return None
        ledger_id, head = read_head(json.loads(raw))
        if ledger_id != self._storage.ledger_id:
            raise ValueError("ledger_id")
        return head

    def _swap(self, found: Head | None, mine: Head, always: bool = False) -> bool:
        """Put a head into the file's place if the file is still as it was found; one process at a time."""
        assert self._path is not None  # noqa: S101  # as above
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self._path.with_suffix(".lock")) as got:
            if not got or (not always and self._read() != found):
                return False
            # Not forced to the disk: a power cut may leave an older witness, which accuses nobody.
            handle, fresh = tempfile.mkstemp(prefix=f".{self._path.stem}.", dir=folder)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(head_line(self._storage.ledger_id, mine) + "\n")
                os.replace(fresh, self._path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(fresh)
                raise
        return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold a lock file, or say that another process holds it; nobody waits for a process that hangs."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if sys.platform == "win32":
            # There the replacement of a file is refused while another process replaces it.
            yield True
        else:
            import fcntl  # noqa: PLC0415  # not everywhere

            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
    finally:
        os.close(handle)


__all__ = ["VARIABLE", "Witness", "has", "head_line", "read_head", "witness_folder"]
