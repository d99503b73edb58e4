"""Odd folders, secrets and hostile texts; what is about a process is tried with one of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from custody_sync.cli.main import run_command

SECRET = "pw-7Q"
COMMAND = [sys.executable, "-m", "custody_sync.cli.main"]
FACTORY = "file_store_of_test"
ONE_BYTE = "latin-1"
"""Reads whatever encoding a command was told to write."""
ODD_FOLDERS = ["50% off/a#b/x%41y", "~tilde/what?"]
PATIENCE, AGAIN = 120.0, 2.0
"""Seconds: how long a command may take in all, and after how long it is interrupted again."""
BRACKETS = ["[/items] closes", "list[str] and [red]x [link=https://x.invalid]y"]
STORE = '''
from __future__ import annotations
import json, pathlib
from custody_sync.model import Entry

class FileStore:
    """One JSON file, so that entries outlive the process."""

    name = "file"
    path = pathlib.Path(__file__).with_name("entries.json")

    def _read(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    async def put(self, fact, label):
        row = {**label.to_metadata(), "text": fact.text}
        self.path.write_text(json.dumps({**self._read(), label.key: row}))
        return [label.key]

    async def delete(self, entry):
        held = self._read()
        held.pop(entry.external_id, None)
        self.path.write_text(json.dumps(held))

    async def find(self, fact_id):
        return [e for e in self._entries() if e.fact_id == fact_id]

    async def list_entries(self):
        for entry in self._entries():
            yield entry

    async def verify_deleted(self, entry):
        return entry.external_id not in self._read()

    def _entries(self):
        held = self._read().items()
        return [Entry.from_metadata(m, store=self.name, external_id=k, text=m["text"]) for k, m in held]

def stores():
    return [FileStore()]
'''


DROPPED = (
    *("CUSTODY_SYNC_", "PYTHONIOENCODING", "PYTHONUTF8", "LC_", "LANG", "NO_COLOR", "COLUMNS", "TERM"),
    # With it a command says how slow the machine is, where its words are compared.
    "PYTHONASYNCIODEBUG",
)


def _environ(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
    return {**kept, "CUSTODY_SYNC_WITNESS": os.environ["CUSTODY_SYNC_WITNESS"], **more}


@dataclass(frozen=True)
class Done:
    """What a command said, and how it ended."""

    status: int
    out: str
    err: str


def _run(*args: str, cwd: Path, status: int | None = 0, **environ: str) -> Done:
    """Run a command in this process, with the folder and the environment that it would have in a new one."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        wanted = _environ(environ)
        for name in os.environ.keys() - wanted.keys():
            patch.delenv(name)
        for name, value in wanted.items():
            patch.setenv(name, value)
        patch.chdir(cwd)
        patch.setattr(sys, "path", list(sys.path))
        # Each folder has a factory of this name, which a new process would not have loaded yet.
        sys.modules.pop(FACTORY, None)
        with redirect_stdout(out), redirect_stderr(err):
            done = Done(run_command(args), out.getvalue(), err.getvalue())
    assert status is None or done.status == status, (args, done)
    return done


def _apart(*args: str, cwd: Path, **environ: str) -> Done:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [*COMMAND, *args], cwd=cwd, env=_environ(environ), capture_output=True, encoding=ONE_BYTE, check=False
    )
    assert done.returncode == 0, (args, done)
    return Done(done.returncode, done.stdout, done.stderr)


def _json(*args: str, cwd: Path, status: int = 0, **environ: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_run(*args, "--json", cwd=cwd, status=status, **environ).out)
    return document


@contextlib.contextmanager
def _child(*args: str, cwd: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command and leave no process behind, however the test ends."""
    child = subprocess.Popen([*COMMAND, *args], cwd=cwd, **{"env": _environ({}), **options})
    try:
        yield child
    finally:
        child.kill()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
        child.wait()


def _on_terminal(
    args: Sequence[str], *, cwd: Path, typed: str = "", interrupt_at: str | None = None, **environ: str
) -> tuple[int, str]:
    """Run a command on a pseudo-terminal, type or interrupt, and return its status and what was shown."""
    shown, keys = pty.openpty()
    terminal = _environ({"COLUMNS": "300", "TERM": "xterm", **environ})
    with _child(*args, cwd=cwd, env=terminal, stdin=keys, stdout=keys, stderr=keys) as child:
        os.close(keys)
        try:
            os.write(shown, typed.encode())
            return _watch(child, shown, interrupt_at)
        finally:
            os.close(shown)


def _watch(child: subprocess.Popen[bytes], shown: int, interrupt_at: str | None) -> tuple[int, str]:
    seen, interrupted, deadline = b"", False, time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline, f"still running after {PATIENCE} s: {seen!r}"
        readable, _, _ = select.select([shown], [], [], AGAIN)
        if readable:
            part = b""
            # Linux reports the other end's close as an error, others as an empty read.
            with contextlib.suppress(OSError):
                part = os.read(shown, 65536)
            if not part:
                return child.wait(PATIENCE), seen.decode("utf-8", "replace")
            seen += part
        due = interrupt_at is not None and interrupt_at.encode() in seen and b"Interrupted" not in seen
        # One that lands just before the read starts is acted on only when the read is over.
        if due and not (interrupted and readable):
            child.send_signal(signal.SIGINT)
            interrupted = True


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a ledger, a custody.toml and a store that keeps its entries in a file."""
    (tmp_path / f"{FACTORY}.py").write_text(STORE)
    (tmp_path / "custody.toml").write_text(
        'ledger = "sqlite:///custody.db"\nfactory = "file_store_of_test:stores"\nactor = "operator:test"\n'
    )
    _run("init", cwd=tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ODD_FOLDERS)
def test_an_odd_folder_holds_its_own_ledger(tmp_path: Path, name: str) -> None:
    """`init` and every later command mean the same file, and nothing else appears anywhere."""
    folder, elsewhere = tmp_path / name, tmp_path / "elsewhere"
    folder.mkdir(parents=True)
    elsewhere.mkdir()
    _run("init", cwd=folder)
    fact = _json("write", "--value", "kept", "--space", "org", cwd=folder)["fact"]["fact_id"]
    by_option = _json("history", fact, "--ledger", f"sqlite:///{folder}/custody.db", cwd=elsewhere)
    by_config = _json("history", fact, cwd=elsewhere, CUSTODY_SYNC_CONFIG=str(folder / "custody.toml"))
    assert by_option["events"] == by_config["events"]
    assert sorted(os.listdir(tmp_path)) == sorted([name.partition("/")[0], "elsewhere"])
    assert os.listdir(elsewhere) == []
    assert {p.name for p in folder.iterdir()} <= {
        "custody.toml",
        "custody.db",
        "custody.db-wal",
        "custody.db-shm",
    }


def test_a_read_only_ledger_is_read_and_left_alone(tmp_path: Path) -> None:
    """A file that nobody may write, in a folder that nobody may write, is still read; nothing appears."""
    folder = tmp_path / "50% off#"
    folder.mkdir()
    _run("init", cwd=folder)
    fact = _json("write", "--value", "kept", "--space", "org", cwd=folder)["fact"]["fact_id"]
    for path in folder.iterdir():
        path.chmod(stat.S_IRUSR)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    before = sorted(os.listdir(folder))
    try:
        assert _json("history", fact, cwd=folder)["events"][0]["kind"] == "assert"
        assert [f["fact_id"] for f in _json("read", cwd=folder)["facts"]] == [fact]
        write = ("write", "--value", "more", "--space", "org")
        assert _json(*write, cwd=folder, status=5)["error"]["code"] == "ledger_read_only"
        assert sorted(os.listdir(folder)) == before
    finally:
        folder.chmod(stat.S_IRWXU)


@pytest.mark.parametrize("command", [("read",), ("write", "--value", "v", "--space", "s")])
def test_a_mistyped_ledger_is_an_error_and_creates_nothing(installed: Path, command: tuple[str, ...]) -> None:
    """One letter wrong exits with 5, in one sentence, and no file appears."""
    before = sorted(os.listdir(installed))
    refused = _json(*command, "--ledger", "sqlite:///custdy.db", cwd=installed, status=5)
    assert refused["error"]["code"] == "ledger_not_found"
    assert sorted(set(os.listdir(installed)) - {"__pycache__"}) == sorted(set(before) - {"__pycache__"})


def test_a_file_that_is_no_ledger_is_left_alone(installed: Path) -> None:
    """Somebody else's file is refused and not one byte of it changes; init does not overwrite it."""
    other = installed / "notes.db"
    other.write_bytes(b"not a database at all")
    for command in (("read",), ("init",)):
        _run(*command, "--ledger", "sqlite:///notes.db", cwd=installed, status=5)
    assert other.read_bytes() == b"not a database at all"


UNREADABLE = [
    f"postgresql:/svc:{SECRET}@db.invalid/led",
    f"postgress://svc:{SECRET}@db.invalid/led",
    f"sqlite://svc:{SECRET}@x/led",
]
UNREACHABLE = [f"postgresql://svc:{SECRET}@127.0.0.1:1/led", f"postgresql://svc:{SECRET}%@127.0.0.1/led"]


@pytest.mark.parametrize(
    ("way", "url"),
    [
        *(("option", url) for url in [*UNREADABLE, *UNREACHABLE]),
        ("variable", UNREACHABLE[1]),
        ("file", UNREADABLE[0]),
    ],
)
def test_no_password_of_a_ledger_url_is_echoed(tmp_path: Path, url: str, way: str) -> None:
    """However the URL is given and whatever is wrong with it, the password is in no stream."""
    args, environ = ["read"], {}
    if way == "option":
        args += ["--ledger", url]
    elif way == "variable":
        environ = {"CUSTODY_SYNC_LEDGER": url}
    else:
        (tmp_path / "custody.toml").write_text(f'ledger = "{url}"\n')
    for more in ([], ["--json"]):
        done = _run(*args, *more, cwd=tmp_path, status=None, **environ)
        assert SECRET not in done.out + done.err
        assert done.status == 2 if url in UNREADABLE else done.status in (2, 5)
        assert done.err.count("\n") == 1
        assert "Traceback" not in done.err
        if more:
            assert json.loads(done.out)["error"]["exit_code"] == done.status


def test_init_writes_no_password_into_its_file(tmp_path: Path) -> None:
    """Whether or not the ledger can be made, a URL with a password is not copied into custody.toml."""
    _run("init", "--ledger", UNREACHABLE[0], cwd=tmp_path, status=None)
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("value", BRACKETS)
def test_brackets_are_shown_verbatim_in_a_pipe_and_on_a_terminal(installed: Path, value: str) -> None:
    """Nothing in a memory is console markup, whichever command shows it and wherever."""
    statement = ("--subject", "acct:[42]", "--predicate", "[p]", "--space", "org")
    shown = _run("write", "--value", value, *statement, cwd=installed).out
    assert f"acct:[42] [p]: {value}" in shown
    assert value in _run("read", cwd=installed).out
    status, seen = _on_terminal(["read"], cwd=installed, NO_COLOR="1")
    assert status == 0, seen
    assert value in seen
    assert "acct:[42]" in seen
    fact = _json("read", cwd=installed)["facts"][0]
    assert (fact["value"], fact["subject"]) == (value, "acct:[42]")
    _run("retract", fact["fact_id"], "--reason", "[/]", cwd=installed)
    history = _run("history", fact["fact_id"], "--verbose", cwd=installed).out
    assert value in history
    assert "[/]" in history
    _run("repair", "--reason", "[/]", cwd=installed)
    forgotten = _run("forget", fact["fact_id"], "--reason", "[/]", "--yes", cwd=installed)
    assert "acct:[42]" in forgotten.err


def test_control_characters_cannot_act_on_a_terminal(installed: Path) -> None:
    """Escape sequences and direction marks are shown, not obeyed."""
    _run("write", "--value", "\x1b[2J\x1b]0;owned\x07 and \u202eevil", "--space", "org", cwd=installed)
    for shown in (
        _run("read", cwd=installed).out,
        _on_terminal(["read"], cwd=installed, NO_COLOR="1")[1],
    ):
        assert "\\x1b[2J\\x1b]0;owned\\x07 and \\u202eevil" in shown
        assert "\x1b[2J" not in shown
        assert "\u202e" not in shown


@pytest.mark.parametrize(
    "environ",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "cp1252:strict"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_an_emoji_survives_every_locale(installed: Path, environ: dict[str, str]) -> None:
    """What an encoding lacks is escaped; exit codes stay, and --json still gives the text back."""
    text = "dark mode \U0001f319 [/] for Zoë"
    if environ.get("PYTHONUTF8") != "0":
        wrote = _apart("write", "--value", text, "--space", "org", "--json", cwd=installed, **environ)
        fact = json.loads(wrote.out)["fact"]
    else:
        fact = _json("write", "--value", text, "--space", "org", cwd=installed)["fact"]
    assert fact["value"] == text
    for command in (("read",), ("history", fact["fact_id"], "-v")):
        assert "dark mode" in _apart(*command, cwd=installed, **environ).out
    assert json.loads(_apart("read", "--json", cwd=installed, **environ).out)["facts"][0]["value"] == text
    _run("forget", fact["fact_id"], "--reason", text, "--yes", cwd=installed)
    status, _ = _on_terminal(["read"], cwd=installed, **environ)
    assert status == 0


def test_a_missing_extra_shows_the_whole_command(installed: Path) -> None:
    """The brackets of an extra are part of the command that installs it."""
    (installed / f"{FACTORY}.py").write_text(
        "from custody_sync.errors import MissingExtra\n"
        "def stores():\n    raise MissingExtra(feature='store mem0', extra='mem0')\n"
    )
    done = _run("repair", cwd=installed, status=2)
    assert "custody-sync[mem0]" in done.err
    status, seen = _on_terminal(["repair"], cwd=installed)
    assert (status, "custody-sync[mem0]" in seen) == (2, True)


def test_an_error_of_the_system_is_one_sentence(installed: Path) -> None:
    """The brackets of a name are no markup either."""
    done = _run("import", "missing[1].jsonl", cwd=installed, status=2)
    assert done.err == "missing[1].jsonl: No such file or directory.\n"
    error = _json("import", "missing[1].jsonl", cwd=installed, status=2)["error"]
    assert error["message"] == "missing[1].jsonl: No such file or directory."


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_result_that_cannot_be_delivered_is_an_error(installed: Path, more: tuple[str, ...]) -> None:
    """A full disk under standard output is told in one sentence, and is not a success."""
    with (
        open("/dev/full", "wb") as full,
        _child("read", *more, cwd=installed, stdout=full, stderr=subprocess.PIPE) as child,
    ):
        _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 2
    assert err.decode() == (
        "standard output cannot be written (No space left on device); what was done stays done.\n"
    )


def test_ids_can_be_copied_from_a_narrow_terminal(installed: Path) -> None:
    """Eighty columns break no id, whatever the command."""
    fact = _json("write", "--value", "word " * 40, "--space", "org", cwd=installed)["fact"]["fact_id"]
    (entry,) = json.loads((installed / "entries.json").read_text())
    _run("retract", fact, "--reason", "r", cwd=installed)
    for command in (["history", fact, "--verbose"], ["verify"], ["read", "--tx-at", "2999-01-01"]):
        status, seen = _on_terminal(command, cwd=installed, NO_COLOR="1", COLUMNS="80")
        assert status == 0, seen
        assert fact in seen or command[0] == "read"
    assert entry in _on_terminal(["history", fact, "-v"], cwd=installed, COLUMNS="80")[1]


@pytest.mark.parametrize(("typed", "status", "left"), [("y\n", 0, 0), ("n\n", 4, 1), ("\n", 4, 1)])
def test_forget_asks_on_a_terminal(installed: Path, typed: str, status: int, left: int) -> None:
    """The value is shown to the person who is asked; only a yes erases."""
    fact = _json("write", "--value", "Tamsin Quillfeather", "--space", "org", cwd=installed)["fact"][
        "fact_id"
    ]
    found, seen = _on_terminal(
        ["forget", fact, "--reason", "asked"], cwd=installed, typed=typed, NO_COLOR="1"
    )
    assert found == status
    assert "Tamsin Quillfeather" in seen
    assert "[y/N]" in seen
    assert len(_json("read", cwd=installed)["facts"]) == left


def test_interrupting_the_question_erases_nothing(installed: Path) -> None:
    """One Ctrl-C at the prompt is enough, and leaves the fact."""
    fact = _json("write", "--value", "kept", "--space", "org", cwd=installed)["fact"]["fact_id"]
    asked = ["forget", fact, "--reason", "asked"]
    status, seen = _on_terminal(asked, cwd=installed, interrupt_at="[y/N]")
    assert (status, "Interrupted" in seen) == (130, True)
    assert len(_json("read", cwd=installed)["facts"]) == 1


def test_colour_is_for_terminals_that_want_it(installed: Path) -> None:
    """Escape sequences appear on a terminal, never in a pipe, and not under NO_COLOR."""
    _run("write", "--value", "v", "--space", "org", cwd=installed)
    fact = _json("read", cwd=installed)["facts"][0]["fact_id"]
    _run("retract", fact, "--reason", "r", cwd=installed)
    assert "\x1b[32m" in _on_terminal(["verify"], cwd=installed)[1]
    assert "\x1b[32m" not in _on_terminal(["verify"], cwd=installed, NO_COLOR="1")[1]
    assert "\x1b" not in _run("verify", cwd=installed).out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["wirte"], "wirte"),
        (["read", "--limit", "0"], "--limit"),
    ],
)
def test_a_usage_error_is_one_sentence_and_exits_with_2(tmp_path: Path, args: list[str], said: str) -> None:
    """A misspelt command or option is named, as JSON too when asked for."""
    done = _run(*args, cwd=tmp_path, status=2)
    assert said in done.err
    assert done.out == ""
    assert said in _json(*args, cwd=tmp_path, status=2)["error"]["message"]


def test_interrupting_ends_with_130_and_one_sentence(installed: Path) -> None:
    """Ctrl-C is no traceback."""
    (installed / f"{FACTORY}.py").write_text(
        "import asyncio, sys\nasync def stores():\n"
        "    print('waiting', file=sys.stderr, flush=True)\n    await asyncio.sleep(600)\n"
    )
    with _child("repair", cwd=installed, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == b"waiting\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130
    assert err.count(b"\n") == 1
    assert b"Interrupted" in err
    assert out == b""


def test_a_reader_that_leaves_is_no_error_message(installed: Path) -> None:
    """`read | head` ends quietly."""
    for number in range(3):
        _run("write", "--value", f"note {number}", "--space", "org", cwd=installed)
    with _child("read", cwd=installed, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        err = child.stderr.read()
        assert child.wait(PATIENCE) == 141
    assert err == b""
