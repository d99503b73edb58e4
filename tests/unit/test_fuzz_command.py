"""Command lines that nobody would type: a documented status, one sentence, and nothing done by halves."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
from fix_fuzz import JSONS, fuzzed
from hypothesis import strategies as st

from custody_sync.cli.main import COMMANDS, GROUPS, application, run_command
from custody_sync.testing import MemoryStore

STATUSES = {0: "done", 1: "a finding", 2: "usage", 3: "partial", 4: "refused", 5: "no ledger"}
"""The exit codes of docs/cli.md; 130 needs somebody to interrupt."""
NOT_RUN = ("demo", "contract")
"""They make a world of their own, and take seconds; their arguments are `--help`'s business."""
SECRET = "S3CRET-pw-7Q"
FACT = "FACT"
"""Stands for the id of a fact that is there."""
OPTIONS: dict[tuple[str, ...], list[tuple[str, str | None]]] = {}
"""By command: its options, and what each one's value is called."""


def _options() -> None:
    group: Any = typer.main.get_command(application())
    lines = [((name,), group.commands[name]) for name in COMMANDS if name not in NOT_RUN]
    lines += [
        ((noun, verb), group.commands[noun].commands[verb])
        for noun, verbs in GROUPS.items()
        for verb in verbs
    ]
    for words, command in lines:
        params = [param for param in command.params if param.param_type_name == "option"]
        OPTIONS[words] = [(option, param.metavar) for param in params for option in param.opts]


_options()
WHOLE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("write",): ("--value", "pro", "--space", "org"),
    ("import",): ("facts.jsonl",),
    ("recall",): ("pro", "--space", "org"),
    ("card",): ("acct:42", "plan"),
    ("history",): (FACT,),
    ("where",): ("--space", "org"),
    ("confirm",): (FACT,),
    ("retract",): (FACT, "--reason", "r"),
    ("hold",): (FACT, "--hold-id", "h"),
    ("release",): (FACT, "--hold-id", "h"),
    ("forget",): (FACT, "--reason", "r", "--yes"),
    ("expire",): ("--window", "org=P1D", "--dry-run"),
    ("adopt",): ("alpha", "--space", "org"),
    ("backfill",): ("alpha",),
    ("verify",): (FACT,),
    ("ledger", "import"): ("export.jsonl", "--ledger", "jsonl:///made.jsonl"),
    ("ledger", "copy"): ("sqlite:///custody.db", "jsonl:///copy.jsonl"),
    ("ledger", "export"): ("--to", "export.jsonl", "--force"),
}
"""What a command needs to get as far as doing something."""
INSTANTS = (
    "2026-11-30", "2026-11-30T12:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59-14:00", "P1D",
    "2026-11-30T12:00:00", "1e9", "now",
)  # fmt: skip
TYPED: dict[str | None, tuple[str, ...]] = {
    "INSTANT": INSTANTS,
    "N": ("0", "1", "-1", "3", "9" * 25, "9" * 5000, "1e9", "NaN", "\u0663", "0x10", "1.5", "inf"),
    "FILE": (
        "plan.jsonl",
        "export.jsonl",
        "custody.toml",
        "custody.db",
        "folder",
        "loop",
        "/dev/null",
        "x" * 5000,
    ),
    "URL": ("sqlite:///custody.db", "sqlite:///missing.db", "jsonl:///custody.db", "sqlite://", "x"),
    "FACT_ID": (FACT, "f", "", "\u202e"),
    "PATTERN=DURATION": ("org=P1D", "*=P999999Y", "org=", "=P1D", "org=P0D", "a*b=P1D", "org=P1D=x"),
    "TEMPLATE": ("user:{scope}", "{scope[0]}", "{scope.__class__}", "{", "{scope:9999999}"),
    "MODULE:NAME": ("os:getcwd", "..:x", "a:b:c", "stores_of_this_test:stores"),
    "VALUE": ("pro", "{}", "[1e999]", "NaN", "[" * 3000, "9" * 5000, '"\\ud800"'),
}


VALUES = st.sampled_from(
    [
        "", " ", "-", "--", "--json", "-h", "0", "1", "-1", "3", "9" * 25, "9" * 5000, "1e9", "NaN", "\u0663",
        "0x10", "2026-11-30", "2026-11-30T12:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59-14:00",
        "P1D", "P999999Y", "org", "user:*", "*", "user:{scope}", "{scope.__class__}", "alpha", "nobody",
        "claimed", "verified", "hmac-sha256", "sha256", "none", "json", "plan", "acct:42", "custody.toml",
        "custody.db", "plan.jsonl", "export.jsonl", "missing", "..", ".", "/", "~", "a/b/c", "/dev/null",
        "folder", "loop", "link", "x" * 5000, "os:getcwd", "a:b", ":", "\x1b[2J\x1b]0;\x07", "\u202e", "a\nb",
        "\udcff\udc80", "\U0001f600", "sqlite:///custody.db", "sqlite:///missing.db", "sqlite://",
        "jsonl:///custody.db", "sqlite:///../x", f"postgresql://u:{SECRET}@127.0.0.1:1/d",
        f"mysql://u:{SECRET}@h/d", "file:///etc/passwd", "[red]x[/red]",
    ]
)  # fmt: skip
ARGUMENTS = VALUES | JSONS.map(json.dumps).filter(lambda text: "\x00" not in text)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Draw a command, whole or not, with options of its own or nobody's, and what they may be given."""
    command = draw(st.sampled_from(list(OPTIONS)))
    words = list(WHOLE.get(command, ())) if draw(st.integers(0, 3)) else draw(st.lists(ARGUMENTS, max_size=2))
    more = [("--nothing", None), ("--json", None)]
    for option, kind in draw(st.lists(st.sampled_from([*OPTIONS[command], *more]), max_size=4)):
        value = draw(st.sampled_from(TYPED[kind]) if kind in TYPED and draw(st.booleans()) else ARGUMENTS)
        if kind is None:
            words.append(option)
        else:
            words += (
                [f"{option}={value}"] if option.startswith("--") and draw(st.booleans()) else [option, value]
            )
    if words and not draw(st.integers(0, 3)):
        words[draw(st.integers(0, len(words) - 1))] = draw(ARGUMENTS)
    # No argument of a process has a NUL in it.
    return [word for word in [*command, *words] if "\x00" not in word]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with a ledger of two facts, two stores, and what a path may lead into; and a fact's id."""
    folder = tmp_path_factory.mktemp("fuzz")
    stores = [MemoryStore("alpha"), MemoryStore("beta")]
    module = ModuleType("stores_of_this_test")
    module.__dict__["stores"] = lambda: stores
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "link").symlink_to("folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "stores_of_this_test", module)
        patch.setattr(sys, "path", list(sys.path))
        for name in [name for name in os.environ if name.startswith("CUSTODY_SYNC_")]:
            if name not in ("CUSTODY_SYNC_WITNESS", "CUSTODY_SYNC_FUZZ_REPORT"):
                patch.delenv(name)
        patch.setenv("CUSTODY_SYNC_WITNESS", str(folder / "witness"))
        patch.chdir(folder)
        (folder / "custody.toml").write_text(
            'ledger = "sqlite:///custody.db?synchronous=off"\nfactory = "stores_of_this_test:stores"\n'
            'actor = "operator:test"\n'
        )
        assert run(["init"])[0] == 0
        names = ["--subject", "acct:42", "--predicate", "plan", "--space", "org"]
        wrote = [run(["write", "--value", value, *names, "--json"])[1] for value in ("pro", "free")]
        (folder / "facts.jsonl").write_text('{"value": "imported", "space": "org"}\n')
        assert run(["repair", "--plan", "plan.jsonl"])[0] == 0
        yield folder, json.loads(wrote[0])["fact"]["fact_id"]


def run(args: list[str]) -> tuple[int, str, str]:
    """Run a command line in this process, with nobody at the terminal."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        status = run_command(args)
    out.flush()
    raw = out.buffer
    assert isinstance(raw, io.BytesIO)
    return status, raw.getvalue().decode(), err.getvalue()


@fuzzed(80, args=command_lines())
def test_any_command_line_ends_as_documented(made: tuple[Path, str], args: list[str]) -> None:
    """A status of the six, no exception that nobody expected, no secret, nothing that acts on a terminal."""
    os.chdir(made[0])
    status, out, err = run([made[1] if arg == FACT else arg for arg in args])
    said = out + err
    assert status in STATUSES, (status, said)
    assert "Unexpected" not in said, said
    assert "Traceback" not in said
    assert SECRET not in said
    assert not any(char in err for char in "\x1b\u202e\x07"), ascii(err)
    if status == 2:
        assert err.strip(), "a refusal that says nothing"
    if "--json" in args and status not in (0, 1):
        document = json.loads(out)
        assert document.get("error", document), document
