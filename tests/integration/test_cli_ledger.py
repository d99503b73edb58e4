"""`custody-sync ledger`: check it, keep its head, write it to a file, and move it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from fix_cli import Cli


def witnessed(cli: Cli) -> Path:
    """Return the folder of witnesses of this test."""
    return Path(os.environ["CUSTODY_SYNC_WITNESS"])


def change(path: Path, statement: str) -> None:
    """Change a ledger behind its back."""
    with closing(sqlite3.connect(path)) as conn:
        conn.execute(statement)
        conn.commit()


def test_a_ledger_that_nobody_changed_passes(cli: Cli) -> None:
    """Intact, complete against the witness that the writes left, and consistent: exit status 0."""
    cli.write()
    document = cli.json("ledger", "verify")
    assert document["passed"] is True
    assert (document["intact"], document["complete"], document["consistent"]) == (True, True, True)
    assert (document["events"], document["compared"]) == (1, [1])
    (secret,) = document["not_checked"]
    assert secret.startswith("the secret that ids of keyed writes are made with: ")
    assert document["kinds"] == {"assert": 1}
    assert Path(document["witness"]).parent == witnessed(cli)
    shown = cli("ledger", "verify")
    for name in ("intact", "complete", "consistent"):
        assert any(line.split() == [name, "yes"] for line in shown.splitlines()), shown


def test_a_finding_exits_with_1_and_names_the_place(cli: Cli) -> None:
    """A changed event, and an answer that does not follow from the log."""
    for value in ("a", "b", "c"):
        cli.write(value)
    ledger = cli.folder / "custody.db"
    shutil.copy(ledger, cli.folder / "good.db")
    change(ledger, "UPDATE events SET body = replace(body, 'operator:test', 'operator:tess') WHERE seq = 2")
    assert cli.json("ledger", "verify", status=1)["first_bad"] == 2
    assert "Event 2: " in cli("ledger", "verify", status=1)
    shutil.copy(cli.folder / "good.db", ledger)
    change(ledger, "UPDATE facts SET subject = 'acct:43' WHERE seq = 3")
    document = cli.json("ledger", "verify", status=1)
    assert (document["intact"], document["consistent"]) == (True, False)
    assert document["inconsistent"][0].endswith(": fact")
    assert document["inconsistent"][0] in cli("ledger", "verify", status=1)
    assert cli.json("ledger", "verify", "--log-only", status=3)["consistent"] is None


def test_a_changed_line_of_a_log_is_a_finding(cli: Cli) -> None:
    """Opening such a ledger is refused, but a check of it says the same as of any other: exit status 1."""
    for value in ("a", "b", "c"):
        cli.write(value)
    cli("ledger", "copy", "sqlite:///custody.db", "jsonl:///l.jsonl")
    log = cli.folder / "l.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"operator:test", b"operator:tess")
    log.write_bytes(b"".join(lines))
    document = cli.json("ledger", "verify", "--ledger", "jsonl:///l.jsonl", status=1)
    assert (document["intact"], document["first_bad"], document["passed"]) == (False, 2, False)
    assert (document["complete"], document["consistent"], document["events"]) == (None, None, 0)
    assert document["problem"].endswith("(line 3)")
    assert "Event 2: " in cli("ledger", "verify", "--ledger", "jsonl:///l.jsonl", status=1)
    log.write_bytes(b"no ledger\n")
    cli("ledger", "verify", "--ledger", "jsonl:///l.jsonl", status=5)


def test_a_head_of_another_ledger_in_this_log_is_a_finding(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives a ledger another id takes its witness from it, but not the heads that others keep."""
    cli.write("a")
    heads = cli("ledger", "head")
    cli.write("b")
    (cli.folder / "heads").write_text(heads + cli("ledger", "head"))
    ledger_id = json.loads(heads)["ledger_id"]
    change(cli.folder / "custody.db", "UPDATE settings SET value = x'6f74686572' WHERE name = 'ledger_id'")
    document = cli.json("ledger", "verify", "--head", "heads", status=1)
    assert (document["ledger_id"], document["intact"], document["complete"]) == ("other", True, False)
    said = f"event 2 is of the ledger {ledger_id}: this is a copy of it, or its id was changed"
    assert document["missing"] == said
    assert "the witness: there is none of a ledger with this id" in document["not_checked"]
    assert said in cli("ledger", "verify", "--head", "heads", status=1)
    assert cli.json("ledger", "verify", status=3)["complete"] is None


def test_what_was_not_checked_exits_with_3(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty ledger, and one that nobody has witnessed, are no pass."""
    assert cli.json("ledger", "verify", status=3)["not_checked"][-1] == "anything: the ledger has no events"
    cli.write()
    monkeypatch.setenv("CUSTODY_SYNC_WITNESS", "off")
    document = cli.json("ledger", "verify", status=3)
    assert (document["intact"], document["complete"], document["witness"]) == (True, None, None)
    cli("ledger", "verify", status=3)
    assert "Not checked: completeness" in cli.stderr


def test_a_head_that_was_kept_elsewhere_shows_what_is_missing(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines may be collected in one file; a proof of `verify --json` is one too."""
    monkeypatch.setenv("CUSTODY_SYNC_WITNESS", "off")
    cli.write("a")
    heads = cli("ledger", "head")
    shutil.copy(cli.folder / "custody.db", cli.folder / "backup.db")
    cli.write("b")
    heads += cli("ledger", "head")
    (cli.folder / "heads.jsonl").write_text(heads)
    assert cli.json("ledger", "head") == json.loads(heads.splitlines()[-1])
    assert cli.json("ledger", "verify", "--head", "heads.jsonl")["compared"] == [1, 2]
    (cli.folder / "proof.json").write_text(cli("verify", "--json", status=3))
    assert cli.json("ledger", "verify", "--head", "proof.json")["compared"] == [2]
    shutil.copy(cli.folder / "backup.db", cli.folder / "custody.db")
    document = cli.json("ledger", "verify", "--head", "heads.jsonl", status=1)
    assert (document["intact"], document["complete"]) == (True, False)
    assert "Not complete: " in cli("ledger", "verify", "--head", "heads.jsonl", status=1)


@pytest.mark.parametrize("text", ["", "nonsense\n", "{}\n", '{"seq":1,"hash":"0"}\n', "\ud800"])
def test_what_is_no_head_is_a_usage_error(cli: Cli, text: str) -> None:
    """A mistyped file is not a finding about the ledger."""
    cli.write()
    (cli.folder / "heads").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert cli.json("ledger", "verify", "--head", "heads", status=2)["error"]["code"] == "invalid_input"
    cli("ledger", "verify", "--head", "missing", status=2)


def test_a_head_that_names_no_ledger_is_a_usage_error(cli: Cli) -> None:
    """It may be another ledger's, so it is no reason for an alarm about this one."""
    cli.write()
    line = json.loads(cli("ledger", "head"))
    del line["ledger_id"]
    (cli.folder / "heads").write_text(json.dumps({**line, "hash": "0" * 64}))
    cli("ledger", "verify", "--head", "heads", status=2)
    assert "does not say of which ledger it is" in cli.stderr


def test_a_head_of_another_ledger_is_a_usage_error(cli: Cli) -> None:
    """It says nothing about this one."""
    cli.write()
    line = json.loads(cli("ledger", "head"))
    (cli.folder / "heads").write_text(json.dumps({**line, "ledger_id": "another", "hash": "0" * 64}))
    cli("ledger", "verify", "--head", "heads", status=2)
    assert "a head of another ledger" in cli.stderr


def test_a_backup_that_was_put_back_is_accepted_by_hand(cli: Cli) -> None:
    """Until then the witness misses what came after the backup."""
    cli.write("a")
    shutil.copy(cli.folder / "custody.db", cli.folder / "backup.db")
    cli.write("b")
    shutil.copy(cli.folder / "backup.db", cli.folder / "custody.db")
    assert cli.json("ledger", "verify", status=1)["complete"] is False
    cli.write("c")
    cli.write("d")
    assert "has seen another event 2 than is here" in cli.stderr
    shutil.copy(cli.folder / "backup.db", cli.folder / "custody.db")
    cli("ledger", "head", "--accept")
    assert "now stands at event 1" in cli.stderr
    assert cli.json("ledger", "verify")["passed"] is True


def test_an_export_is_imported_and_exported_again(cli: Cli) -> None:
    """The lines are the same; the copy has an id of its own, unless it takes the other's place."""
    cli.write("a")
    cli.write("b \u2028 ü")
    document = cli.json("ledger", "export", "--to", "log.jsonl")
    assert Path(document["file"]).name == "log.jsonl"
    first = (cli.folder / "log.jsonl").read_bytes()
    done = cli.json("ledger", "import", "log.jsonl", "--ledger", "sqlite:///copy.db")
    assert (done["before"], done["added"], done["head"]) == (0, 2, document["head"])
    assert done["ledger_id"] != document["ledger_id"]
    cli("ledger", "export", "sqlite:///copy.db", "--to", "again.jsonl")
    assert (cli.folder / "again.jsonl").read_bytes().splitlines()[1:] == first.splitlines()[1:]
    cli("ledger", "import", "log.jsonl", "--move", "--ledger", "sqlite:///same.db")
    cli("ledger", "export", "sqlite:///same.db", "--to", "same.jsonl")
    assert (cli.folder / "same.jsonl").read_bytes() == first
    again = cli.json("ledger", "import", "log.jsonl", "--ledger", "sqlite:///copy.db")
    assert (again["before"], again["added"]) == (2, 0)


def test_an_export_may_go_through_a_pipe(cli: Cli) -> None:
    """`-` is stdout and stdin, and carries nothing but the lines."""
    cli.write("a")
    cli("ledger", "export", "--to", "log.jsonl")
    command = [sys.executable, "-m", "custody_sync.cli.main", "ledger"]
    out = subprocess.run([*command, "export"], cwd=cli.folder, capture_output=True, check=True)
    assert out.stdout == (cli.folder / "log.jsonl").read_bytes()
    into = [*command, "import", "-", "--ledger", "sqlite:///copy.db", "--json"]
    done = subprocess.run(into, cwd=cli.folder, input=out.stdout, capture_output=True, check=True)
    assert json.loads(done.stdout)["added"] == 1
    cli("ledger", "export", "--json", status=2)


def test_an_export_that_fails_leaves_no_half_of_a_file(cli: Cli) -> None:
    """Nothing is written over what was there, and nothing is left beside it."""
    cli.write("a")
    cli.write("b")
    (cli.folder / "log.jsonl").write_text("as it was")
    change(cli.folder / "custody.db", "UPDATE events SET body = 'x' WHERE seq = 2")
    cli("ledger", "export", "--to", "log.jsonl", "--force", status=5)
    assert (cli.folder / "log.jsonl").read_text() == "as it was"
    assert not list(cli.folder.glob(".log.jsonl*"))
    cli("ledger", "export", "--to", "missing/log.jsonl", status=2)


def test_a_file_that_is_no_export_makes_no_ledger(cli: Cli) -> None:
    """Its first line is looked at before anything is made."""
    (cli.folder / "facts.jsonl").write_text('{"space": "org"}\n')
    cli("ledger", "import", "facts.jsonl", "--ledger", "sqlite:///new.db", status=5)
    cli("ledger", "import", "missing.jsonl", "--ledger", "sqlite:///new.db", status=2)
    assert not (cli.folder / "new.db").exists()


def test_a_copy_is_another_ledger_and_a_move_the_same(cli: Cli) -> None:
    """After a move the old place refuses with a sentence that says where to."""
    cli.write("a")
    mine = cli.json("ledger", "head")
    copied = cli.json("ledger", "copy", "sqlite:///custody.db", "sqlite:///copy.db")
    assert (copied["added"], copied["head"]["hash"]) == (1, mine["hash"])
    assert copied["ledger_id"] != mine["ledger_id"]
    moved = cli.json("ledger", "copy", "sqlite:///custody.db", "sqlite:///new.db", "--move")
    assert moved["ledger_id"] == mine["ledger_id"]
    cli.write("b", status=5)
    assert "was moved to" in cli.stderr
    cli.write("b", "--ledger", "sqlite:///new.db")
    assert cli.json("ledger", "verify", "--ledger", "sqlite:///new.db")["passed"] is True
    back = cli.json("ledger", "copy", "sqlite:///new.db", "sqlite:///custody.db", "--move")
    assert (back["before"], back["added"]) == (1, 1)
    cli.write("c")
    cli("ledger", "copy", "sqlite:///custody.db", "sqlite:///./custody.db", status=2)
    cli("ledger", "copy", "sqlite:///missing.db", "sqlite:///x.db", status=5)
    assert not (cli.folder / "x.db").exists()


def test_an_export_replaces_a_file_only_where_that_was_asked_for(cli: Cli) -> None:
    """What lies there may be another ledger's only log."""
    cli.write("a")
    (cli.folder / "log.jsonl").write_text("as it was")
    (cli.folder / "link.jsonl").symlink_to("nowhere")
    for name in ("log.jsonl", "link.jsonl"):
        cli("ledger", "export", "--to", name, status=2)
        assert "is there already; --force replaces it" in cli.stderr
    assert (cli.folder / "log.jsonl").read_text() == "as it was"
    cli("ledger", "export", "--to", "log.jsonl", "--force")
    assert cli.json("ledger", "verify", "--ledger", "jsonl:///log.jsonl", "--log-only", status=3)["intact"]


@pytest.mark.parametrize("name", ["custody.db", "custody.db-wal", "l.jsonl", "l.jsonl-notes", "link.jsonl"])
def test_a_ledger_is_never_exported_over_itself(cli: Cli, name: str) -> None:
    """Not even by another name or with --force: whoever has it open would lose what they append."""
    cli.write("a")
    cli("ledger", "copy", "sqlite:///custody.db", "jsonl:///l.jsonl")
    (cli.folder / "link.jsonl").symlink_to("l.jsonl")
    url = f"sqlite:///{cli.folder}/custody.db" if name.startswith("custody") else "jsonl:///link.jsonl"
    before = (cli.folder / "l.jsonl").read_bytes()
    cli("ledger", "export", url, "--to", name, "--force", status=2)
    assert "is a file of the ledger itself" in cli.stderr
    assert (cli.folder / "l.jsonl").read_bytes() == before


def test_an_import_that_takes_a_place_is_continued(cli: Cli) -> None:
    """The id makes it the same ledger; the secret is one that the first run made."""
    for value in ("a", "b"):
        cli.write(value)
    cli("ledger", "export", "--to", "log.jsonl")
    lines = (cli.folder / "log.jsonl").read_bytes().splitlines(keepends=True)
    (cli.folder / "half.jsonl").write_bytes(b"".join(lines[:2]))
    into = ("--move", "--ledger", "sqlite:///new.db")
    assert cli.json("ledger", "import", "half.jsonl", *into)["head"]["seq"] == 1
    done = cli.json("ledger", "import", "log.jsonl", *into)
    assert (done["before"], done["added"], done["remains"]) == (1, 1, [])


def test_a_move_says_that_the_old_place_keeps_every_value(cli: Cli) -> None:
    """A later forget reaches the new place alone; a run that has nothing left to do says it as well."""
    cli.write("a")
    for _ in range(2):
        cli("ledger", "copy", "sqlite:///custody.db", "sqlite:///new.db", "--move")
        assert "custody.db still has every value that was not erased" in cli.stderr
        assert "delete it once the new place is in use." in cli.stderr
        cli.write("b", "--ledger", "sqlite:///new.db")
    document = cli.json("ledger", "copy", "sqlite:///custody.db", "sqlite:///new.db", "--move")
    assert len(document["remains"]) == 1
    cli.write("c", status=5)
