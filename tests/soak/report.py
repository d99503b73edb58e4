"""The report of a soak: a page for readers and the same as JSON, dated; and the list of all reports."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from soak.parts import cores
from soak.records import SKIPPED, State, Tally

LIST = "README.md"
_BEGIN, _END = "<!-- reports -->", "<!-- end -->"


def machine() -> dict[str, Any]:
    """Return what matters of this machine, and nothing that would tell which one it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores(),
        "memory_gb": round(memory / 2**30, 1),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def commit(root: Path) -> str:
    """Return what was tried: the commit, and whether the files were it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    head = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain")
    return f"{head or 'unknown'}{' with changes' if changed else ''}"


def document(
    tallies: Sequence[Tally], *, began: datetime, hours: float, start: int, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the report as JSON holds it.

    Args:
        tallies: what came of each part.
        began: when the soak began.
        hours: how long it was to go on.
        start: the seed that everything random followed from.
        about: the commit, the machine, how long it took, whether somebody interrupted it, and what was
            left out by choice.
    """
    parts = [
        {
            "name": tally.part.name,
            "title": tally.part.title,
            "state": tally.state.value,
            "rounds": tally.rounds,
            "rounds_cut_short": tally.cut,
            "counts": dict(tally.counts),
            "failures": [{"what": f.what, "command": f.command} for f in tally.failures],
            "wall_seconds": round(tally.wall_seconds, 1),
            "cpu_seconds": round(tally.cpu_seconds, 1),
            "command": tally.command,
        }
        for tally in tallies
    ]
    failed = sum(len(tally.failures) for tally in tallies)
    head = {"date": f"{began:%Y-%m-%d}", "hours": hours, "start": start, "failed": failed}
    head["counted_nothing"] = [tally.part.name for tally in tallies if tally.counted_nothing]
    return {**head, **about, "parts": parts}


def page(said: Mapping[str, Any]) -> str:
    """Return the report as a page."""
    on = said["machine"]
    lines = [
        f"# Soak of {said['date']}",
        "",
        f"`make soak HOURS={said['hours']:g}` on {on['cores']} cores, {on['memory_gb']} GB, {on['system']}, "
        f"{on['python']}; commit {said['commit']}; from seed {said['start']}.",
        "",
        _verdict(said),
        "",
        "| part | what it does | state | counted | failed | CPU seconds | seconds |",
        "|---|---|---|---|---|---|---|",
        *map(_row, said["parts"]),
        "",
        *_failures(said["parts"]),
        "## Commands",
        "",
        "The first round of each part:",
        "",
        "```text",
        *[part["command"] for part in said["parts"] if part["command"]],
        "```",
    ]
    return "\n".join(lines) + "\n"


def _verdict(said: Mapping[str, Any]) -> str:
    count = said["failed"]
    words = "Nothing of what was run failed." if not count else f"**{count} failed**, see below."
    if said["counted_nothing"]:
        words += f" **Counted nothing**, which is no success: {', '.join(said['counted_nothing'])}."
    skips = {part["name"]: part["counts"].get(SKIPPED) for part in said["parts"]}
    if skipped := [f"{number:,} of {name}" for name, number in skips.items() if number]:
        words += f" Tests that were skipped: {', '.join(skipped)}."
    if said["interrupted"]:
        words += " The soak was interrupted."
    left = [part["name"] for part in said["parts"] if part["state"] == State.NOT_RUN]
    cut = [part["name"] for part in said["parts"] if part["state"] == State.STOPPED]
    if said["left_out"]:
        words += f" Left out by choice: {', '.join(said['left_out'])}."
    if left:
        words += f" Not run at all: {', '.join(left)}."
    if cut:
        words += f" Cut short, so that only a part of it was run: {', '.join(cut)}."
    return words


def _row(part: Mapping[str, Any]) -> str:
    counted = ", ".join(f"{number:,} {what}" for what, number in part["counts"].items()) or "nothing"
    state = part["state"]
    if state == State.STOPPED:
        state += f" ({part['rounds_cut_short']} of {part['rounds']} rounds cut short)"
    cells = (part["name"], part["title"], state, counted, len(part["failures"]))
    return f"| {' | '.join(map(str, cells))} | {part['cpu_seconds']:,.0f} | {part['wall_seconds']:,.0f} |"


def _failures(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        for failure in part["failures"]:
            lines += [f"* {part['name']}: {failure['what']}", "", f"      {failure['command']}", ""]
    return ["## What failed", "", *lines] if lines else []


def write(said: Mapping[str, Any], folder: Path) -> Path:
    """Write the report beside earlier ones and list it; a second one of a day gets a number.

    Args:
        said: the report.
        folder: where reports are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        path = _new_page(folder, said["date"])
        _put(path.with_suffix(".json"), json.dumps(said, indent=1, ensure_ascii=False) + "\n")
        _put(path, page(said))
        _list(folder)
    return path


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait for a soak that ends at the same moment: each writes the list that the other has read."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _new_page(folder: Path, date: str) -> Path:
    """Take a name that no report has: a file is made, so that nobody else takes it."""
    path, number = folder / f"{date}.md", 1
    while True:
        with suppress(FileExistsError), path.open("x"):
            if not path.with_suffix(".json").exists():
                return path
            path.unlink()
        number += 1
        path = folder / f"{date}-{number}.md"


def _put(path: Path, text: str) -> None:
    """Write a file at once or not at all: a soak may be killed at this moment."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(path)


def _list(folder: Path) -> None:
    """Write the list of all reports anew, the newest first, and name those that cannot be read."""
    rows = ["| report | hours | commit | counted | failed |", "|---|---|---|---|---|"]
    unreadable = []
    for path in sorted(folder.glob("*.json"), key=_age, reverse=True):
        try:
            rows.append(_listed(path))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            unreadable.append(path.name)
    if unreadable:
        rows += ["", f"Left out, since they cannot be read: {', '.join(unreadable)}."]
    there = folder / LIST
    text = there.read_text() if there.exists() else f"# Soaks\n\n{_BEGIN}\n{_END}\n"
    before, _, rest = text.partition(_BEGIN)
    _put(there, "\n".join([before + _BEGIN, *rows, _END]) + rest.partition(_END)[2])


def _listed(path: Path) -> str:
    """Return the row of a report: what was tried, over all storages and parts together."""
    said = json.loads(path.read_text())
    sums: Counter[str] = Counter()
    for part in said["parts"]:
        for what, number in part["counts"].items():
            sums[what.partition(" over ")[0]] += number
    counts = [f"{number:,} {what}" for what, number in sums.items() if what in WORTH_LISTING]
    cells = (said["hours"], said["commit"][:12], ", ".join(counts) or "nothing", said["failed"])
    return f"| [{path.stem}]({path.stem}.md) | {' | '.join(map(str, cells))} |"


def _age(path: Path) -> tuple[str, int]:
    """Return what reports are sorted by: the day, and which of the day it is."""
    day, number = path.stem[:10], path.stem[11:]
    return day, int(number) if number.isdecimal() else 1


WORTH_LISTING = frozenset(
    {
        "seeds",
        "schedules",
        "single faults",
        "double faults",
        "executions",
        "random kills",
        "kills at fault points",
        "mutants",
        "mutants killed",
        "tests passed",
    }
)
"""The counts that the list of reports shows."""
