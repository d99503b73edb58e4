"""docs/cli.md says what the commands say of themselves. Run this file to write its reference anew."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import typer.main

from custody_sync.cli.main import COMMANDS, GROUPS, application
from custody_sync.settings import load_settings

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
_GENERATED = re.compile(r"(?<=<!-- commands -->\n).*(?=<!-- end of commands -->)", re.DOTALL)


def _reference() -> str:
    """Render every command's description, arguments and options."""
    return "\n" + "\n".join(_section(name, command) for name, command in _commands().items())


def _commands() -> dict[str, Any]:
    """Return every command by all of its words."""
    group: Any = typer.main.get_command(application())
    found = {name: group.commands[name] for name in COMMANDS}
    for noun, verbs in GROUPS.items():
        found |= {f"{noun} {verb}": group.commands[noun].commands[verb] for verb in verbs}
    return found


def _section(name: str, command: Any) -> str:
    arguments = " ".join(_argument(p) for p in command.params if p.param_type_name == "argument")
    title = f"### custody-sync {name}"
    usage = f"custody-sync {name} [options]{' ' + arguments if arguments else ''}"
    rows = [_row(p) for p in command.params if p.param_type_name == "option" and p.name != "help"]
    table = ["| option | meaning |", "|---|---|", *rows]
    return "\n".join([title, "", f"    {usage}", "", inspect.cleandoc(command.help), "", *table, ""])


def _argument(argument: Any) -> str:
    spelled = (argument.metavar or argument.name) + ("..." if argument.nargs == -1 else "")
    return spelled if argument.required else f"[{spelled}]"


def _row(option: Any) -> str:
    spelled = ", ".join(option.opts)
    shown = spelled if option.is_flag else f"{spelled} {option.metavar}"
    notes = [option.help]
    if option.required:
        notes.append("Required.")
    elif option.default not in (None, False) and not callable(option.default):
        notes.append(f"Default: {option.default}.")
    return f"| `{shown}` | {' '.join(notes)} |"


def test_the_reference_is_what_the_commands_say() -> None:
    """Every command, option and help text of the page is the one in the code."""
    found = _GENERATED.search(PAGE.read_text())
    assert found is not None
    assert found[0] == _reference(), "run: python tests/unit/test_cli_docs.py"


def test_every_status_of_the_page_is_in_the_help() -> None:
    """`--help` names each exit status that the page lists."""
    listed = re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    said = inspect.cleandoc(typer.main.get_command(application()).help or "")
    assert len(listed) == 7
    assert {number for number in listed if not re.search(rf"\b{number} \w", said)} == set()


def test_every_option_explains_itself() -> None:
    """An option without a help text or with a bare type as its value is not finished."""
    for name, command in _commands().items():
        for option in command.params:
            if option.param_type_name == "option":
                assert option.help, (name, option.name)
                assert option.is_flag or option.metavar, (name, option.name)


def test_the_example_settings_of_the_page_are_valid(tmp_path: Path) -> None:
    """The custody.toml that the page shows is read without a complaint."""
    example = re.search(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert example is not None
    (tmp_path / "custody.toml").write_text(example[1])
    settings = load_settings(cwd=tmp_path, environ={})
    assert settings.ledger == f"sqlite:///{tmp_path}/custody.db"
    assert settings.superseded == {"archive": "keep"}


if __name__ == "__main__":
    PAGE.write_text(_GENERATED.sub(lambda _: _reference(), PAGE.read_text()))
