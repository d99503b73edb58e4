"""Descriptors of files that SQLite may have open: they wait where closing one would take its locks."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from fix_files import descriptors_of

from custody_sync import rawfiles


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that may be anything."""
    path = tmp_path / "l.db"
    rawfiles.create(path)
    path.write_bytes(b"a" * 3_000_000 + b"needle" + b"b" * 1_000)
    return path


def read(path: Path) -> bytes:
    """Read a file's first bytes."""
    with rawfiles.opened(path) as opened:
        return opened.read(3)


def test_without_a_connection_nothing_waits(file: Path) -> None:
    """A descriptor that spares no lock is closed at once."""
    assert read(file) == b"aaa"
    assert descriptors_of(file) == 0


def test_one_descriptor_waits_for_the_last_connection_however_often_is_read(file: Path) -> None:
    """It is used again, and closed when nothing is open any more."""
    first, second = rawfiles.hold(file), rawfiles.hold(file)
    assert first
    assert second
    assert {read(file) for _ in range(5)} == {b"aaa"}
    assert descriptors_of(file) == 1
    first.release()
    first.release()
    assert descriptors_of(file) == 1
    second.release()
    assert descriptors_of(file) == 0


def test_a_file_in_anothers_place_is_read_itself(file: Path) -> None:
    """What waits belongs to a file and not to its name."""
    kept = rawfiles.hold(file)
    assert read(file) == b"aaa"
    other = file.with_name("other")
    other.write_bytes(b"new")
    os.replace(other, file)
    assert read(file) == b"new"
    assert kept


def test_a_connection_that_was_dropped_keeps_nothing_for_good(file: Path) -> None:
    """Whoever reads next closes what waited for it."""
    kept = rawfiles.hold(file)
    read(file)
    assert kept
    del kept
    gc.collect()
    read(file)
    assert descriptors_of(file) == 0


def test_a_file_that_is_not_there_is_held_by_nobody(tmp_path: Path) -> None:
    """SQLite says so itself; reading it is the system's error."""
    assert rawfiles.hold(tmp_path / "none") is None
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


@pytest.mark.parametrize("needle", [b"needle", b"aneedleb", b"a", b"bbb", b"a" * 1024, b"b" * 1000])
def test_bytes_are_found_wherever_they_lie(file: Path, needle: bytes) -> None:
    """Also at the very end, and whatever is looked for beside them."""
    assert rawfiles.holds_any(file, [b"absent" * 10, needle])
    assert not rawfiles.holds_any(file, [b"absent", needle + b"!"])
    assert not rawfiles.holds_any(file, [])


def test_bytes_are_found_where_two_pieces_meet(tmp_path: Path) -> None:
    """A file is read piece by piece, and a salt may begin in one and end in the next."""
    piece = rawfiles._SEARCH
    for start in range(piece - 16, piece + 1):
        path = tmp_path / str(start)
        path.write_bytes(bytes(start) + b"0123456789abcdef" + bytes(10))
        assert rawfiles.holds_any(path, [b"0123456789abcdef"])
        assert not rawfiles.holds_any(path, [b"0123456789abcdeX"])


def test_threads_that_open_read_and_close_leave_no_descriptor_and_no_lock_behind(file: Path) -> None:
    """While anybody's connection is open something waits, and after the last one nothing."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(300):
                kept = rawfiles.hold(file)
                assert read(file) == b"aaa"
                assert descriptors_of(file) >= 1
                assert kept
                kept.release()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert descriptors_of(file) == 0


def test_a_forked_child_waits_for_no_thread_of_its_parent(file: Path) -> None:
    """Somebody may hold the lock at the moment of the fork."""
    with rawfiles._open.guard:
        held = threading.Event()
        child = 0

        def fork() -> None:
            nonlocal child
            child = os.fork()
            if child == 0:
                os._exit(0 if read(file) == b"aaa" else 1)
            held.set()

        thread = threading.Thread(target=fork)
        thread.start()
        assert held.wait(20)
        thread.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_forked_child_has_nothing_of_its_parents_and_is_told(file: Path) -> None:
    """It closes what waited, so that the two never read by one descriptor, and knows what was open."""
    kept = rawfiles.hold(file)
    assert kept
    read(file)
    child = os.fork()
    if child == 0:
        good = descriptors_of(file) == 0 and rawfiles.is_inherited(file) and read(file) == b"aaa"
        os._exit(0 if good and descriptors_of(file) == 0 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert descriptors_of(file) == 1
    assert not rawfiles.is_inherited(file)
    kept.release()


def test_a_grandchild_has_no_locks_either(file: Path) -> None:
    """What its grandparent had open stays closed to it."""
    kept = rawfiles.hold(file)
    assert kept
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if rawfiles.is_inherited(file) else 1)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kept.release()


def test_beside_a_link_what_lies_beside_the_file_itself_is_spared(file: Path) -> None:
    """SQLite keeps its shared memory beside the file that a link leads to."""
    beside, link = file.with_name("l.db-shm"), file.with_name("link")
    beside.write_bytes(b"shm")
    link.symlink_to(file)
    kept = rawfiles.hold(link)
    assert kept
    assert read(beside) == b"shm"
    assert descriptors_of(beside) == 1
    kept.release()
    assert descriptors_of(beside) == 0


def test_what_was_closed_before_a_fork_is_not_inherited(file: Path) -> None:
    """It may be opened on both sides."""
    kept = rawfiles.hold(file)
    assert kept
    kept.release()
    child = os.fork()
    if child == 0:
        os._exit(1 if rawfiles.is_inherited(file) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_lies_beside_an_open_file_waits_as_well(file: Path) -> None:
    """SQLite has locks on its shared memory; the write-ahead log it has none on."""
    beside, log = file.with_name("l.db-shm"), file.with_name("l.db-wal")
    for path in (beside, log):
        path.write_bytes(b"shm")
    kept = rawfiles.hold(file)
    assert kept
    assert (read(beside), read(log)) == (b"shm", b"shm")
    assert (descriptors_of(beside), descriptors_of(log)) == (1, 0)
    kept.release()
    assert descriptors_of(beside) == 0


def test_a_new_file_that_somebody_connects_to_at_once_keeps_its_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two threads that create a ledger the second may have its locks before the first has let go."""
    path, really, kept = tmp_path / "new.db", os.open, list[Any]()

    def and_connect(*args: Any, **more: Any) -> int:
        handle = really(*args, **more)
        kept.append(rawfiles.hold(path))
        return handle

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", and_connect)
        rawfiles.create(path)
    assert descriptors_of(path) == 1
    kept[0].release()
    assert descriptors_of(path) == 0


def test_a_release_waits_for_nobody(file: Path) -> None:
    """A finalizer may close a ledger while another thread counts; whoever comes next does it for both."""
    kept = rawfiles.hold(file)
    assert kept
    read(file)
    with rawfiles._open.guard:
        kept.release()
    assert descriptors_of(file) == 1
    read(file)
    assert descriptors_of(file) == 0


def test_a_descriptor_that_somebody_else_closed_is_not_used_or_closed_again(
    file: Path, tmp_path: Path
) -> None:
    """Its number may be another file's by now."""
    other = tmp_path / "other"
    other.write_bytes(b"other")
    kept = rawfiles.hold(file)
    assert kept
    for ends in (lambda: read(file), kept.release):
        read(file)
        (waiting,) = rawfiles._open._waiting
        with other.open("rb") as theirs:
            os.dup2(theirs.fileno(), waiting.handle)
        ends()
        assert os.pread(waiting.handle, 5, 0) == b"other"
        os.close(waiting.handle)
    assert descriptors_of(file) == 0


def test_a_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    """What is no regular file has no beginning to go back to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"abcdef"))
    writer.start()
    with rawfiles.opened(pipe) as opened:
        assert opened.read() == b"abcdef"
    writer.join()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """It is said as it is of every other attempt to read one."""
    with pytest.raises(IsADirectoryError) as caught:
        read(tmp_path)
    assert caught.value.filename == str(tmp_path)
    assert descriptors_of(tmp_path) == 0
