"""Settings and URLs that anybody may have written: read as they stand, or refused without a secret."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fix_fuzz import CHANGES, NAUGHTY, TEXTS, changed, fuzzed, refused
from hypothesis import strategies as st

from custody_sync.errors import CustodyError, LedgerNotFound
from custody_sync.ledger import Ledger
from custody_sync.ledger.postgres_url import Location
from custody_sync.settings import Settings, import_target, load_settings
from custody_sync.throttling import Pace

SECRET = "S3CRET-pw-7Q"
SOUND = f"""\
# \ufeffSettings
ledger = "postgresql://u:{SECRET}@db.invalid/led"
factory = "myapp.memory:stores"
validators = "myapp.memory:validators"
actor = "operator:me"
forget_key_env = "CUSTODY_FORGET_KEY"

[superseded]
archive = "keep"

[retention]
org = "P10Y"
"team:*" = "P90D"

[stores.memories]
concurrency = 4
per_second = 2.5
""".encode()
ODD_TOML = st.sampled_from(
    [
        b"9" * 5000, b"[" * 5000 + b"]" * 5000, b"{a=" * 3000 + b"1" + b"}" * 3000, b"1979-05-27T00:32:00Z",
        b"inf", b"-nan", b"0x" + b"f" * 40, b'"""', b"'''\n'''", b'"\\u0000"', b'"\\ud800"', b"{}", b"true",
        b"[[stores]]", b"1e999", b"''", b"a.b.c.d = 1", b"[" + b"a." * 4000 + b"a]", b"a = 1\na = 2",
    ]
)  # fmt: skip
TOML_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("token", "insert", "flip", "drop", "double", "swap", "crlf", "bom", "cut")),
        st.floats(0, 1, exclude_max=True),
        st.floats(0, 1, exclude_max=True),
        ODD_TOML,
    ),
    min_size=1,
    max_size=2,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with nothing in it that a path may point to, and the import path as it was afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        yield tmp_path_factory.mktemp("fuzz")


def used(settings: Settings) -> None:
    """Use what settings name, as a command does."""
    settings.forget_key({})
    for key, target in (("factory", settings.factory), ("validators", settings.validators)):
        if target is not None:
            import_target(settings.folder, key, target)


@fuzzed(150, changes=CHANGES | TOML_CHANGES)
def test_settings_are_read_whole_or_refused(folder: Path, changes: list[Any]) -> None:
    """Every key has a value of its kind, or the file is refused; what it says is not repeated."""
    path = folder / "custody.toml"
    path.write_bytes(changed(SOUND, changes))
    try:
        found = load_settings(path, environ={}, cwd=folder)
        used(found)
    except CustodyError as error:
        refused(error, SECRET)
        return
    assert isinstance(found, Settings)
    assert SECRET not in repr(found)
    texts = (found.ledger, found.factory, found.validators, found.actor, found.forget_key_env)
    assert all(text is None or (isinstance(text, str) and text.strip()) for text in texts)
    assert set(found.superseded.values()) <= {"remove", "keep"}
    assert all(type(pace) is Pace for pace in found.paces.values())


TRICKS = st.sampled_from(
    [
        "..", "../..", ".", "~", "~root", "a/../b", "%2e%2e", "a..b", "..a", ":", "::", "a:b:c", "a:", ":a",
        "a b", "a\x00b", "/dev/zero", "\\", "os.path\n", "-", "a-b", "1", "\u202ea", "\uff41", "__main__",
        "x.", "file://",
    ]
)  # fmt: skip


@fuzzed(60, module=TRICKS | TEXTS, name=TRICKS | st.sampled_from(["stores", "__dict__", "x"]))
def test_a_factory_is_a_name_and_no_path(folder: Path, module: str, name: str) -> None:
    """What is no module and name is refused in a sentence; no path leads anywhere."""
    try:
        import_target(folder, "factory", f"{module}:{name}")
    except CustodyError as error:
        refused(error)
    else:
        assert module in sys.modules


PATHS = st.lists(
    st.sampled_from(
        ["..", ".", "", "~", "a", "%2e%2e", "%00", "loop", "link", "fifo", "folder", "dev", "zero", "full",
         "\n", "?synchronous=off", "?synchronous=on", "#", "?", "custody.db", "\u202e", "a" * 300, "-wal"]
    )
    | NAUGHTY,
    max_size=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def tricky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a path may lead into: a loop, a device, a pipe, a folder, a file of somebody's."""
    folder = tmp_path_factory.mktemp("tricky")
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "full").symlink_to("/dev/full")
    (folder / "link").symlink_to("folder")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    return folder


@fuzzed(80, scheme=st.sampled_from(["sqlite", "jsonl", "SQLITE", "sqlite+x", "file"]), parts=PATHS)
def test_a_ledger_url_opens_nothing_that_is_no_ledger(tricky: Path, scheme: str, parts: list[str]) -> None:
    """Devices, pipes, loops and folders are refused as a missing file is; nothing is made or altered."""
    before = sorted(str(path) for path in tricky.rglob("*"))
    url = f"{scheme}:///{'/'.join([str(tricky), *parts])}"
    with pytest.raises(CustodyError) as caught:
        asyncio.run(Ledger.open(url, witness=False))
    refused(caught.value)
    assert sorted(str(path) for path in tricky.rglob("*")) == before


HOSTS = st.sampled_from(["db.invalid", "127.0.0.1:1", "[::1]:5432", "/run/pg", "a,b", "", "h:x", "%2Frun"])
TAILS = st.sampled_from(
    ["/led", "", "/led?schema=custody", "/led?schema=a;b", "/led?schema=pg_x", '/led?schema="',
     "/led?vacuum=x", "/l ed", "/led?connect_timeout=x", "/led?password=" + SECRET, "/led?options=-c%20x",
     "/%00", "/led?%"]
)  # fmt: skip
PASSWORDS = st.text(st.sampled_from("@/:%?#&= \\'\"\n[]"), max_size=4)


@fuzzed(150, user=PASSWORDS, before=PASSWORDS, after=PASSWORDS, host=HOSTS, tail=TAILS, escaped=st.booleans())
def test_no_reading_of_a_url_shows_its_password(
    user: str, before: str, after: str, host: str, tail: str, escaped: bool
) -> None:
    """However a URL is broken by what stands in its password, neither name, repr nor refusal repeats it."""
    password = f"{before}{SECRET}{after}"
    url = f"postgresql://u{user}:{quote(password, safe='') if escaped else password}@{host}{tail}"
    try:
        found = Location.parse(url)
    except CustodyError as error:
        refused(error, SECRET)
    else:
        assert SECRET not in f"{found.name}{found!r}{found.schema}"
        assert found.schema.isidentifier()


def test_a_ledger_that_is_missing_is_only_missing(tricky: Path) -> None:
    """The folder above has none, so that whatever opens there was made by a path."""
    with pytest.raises(LedgerNotFound):
        asyncio.run(Ledger.open(f"sqlite:///{tricky}/custody.db", witness=False))
