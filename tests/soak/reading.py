"""Reading what a round printed: how much was tried, what failed, and how it is shown again."""

from __future__ import annotations

import json
import re
from collections import Counter

from soak.records import SKIPPED, Failure, Round, Seen, shell_line

STILL_OPEN = "whose survivors are still to be gone through"
"""What is said of a target of mutants whose survivors are shown and fail nothing."""
_TALLY = re.compile(r"^([\d,]+ (?:seeds|cases), .*)$", re.MULTILINE)
_COUNT = re.compile(r"([\d,]+) ([a-z][a-z ]*)")
_KILLS = re.compile(r"^(kills|histories) over (\w+): (.+)$", re.MULTILINE)
_MATRIX = re.compile(r"^crash matrix: \d+ kills in \d+ s \((.+)\)$", re.MULTILINE)
_NAMED_COUNT = re.compile(r"([a-z][a-z_ ]*) (\d+)")
_RERUN = re.compile(r"(seed \d+\b.*); run it again: (.+)$", re.MULTILINE)
_EXECUTIONS = re.compile(r'\{"test": .*\}$', re.MULTILINE)
_MUTANTS = re.compile(r"^\w+: (\d+) mutants, (\d+) killed \(.*?\), (\d+) explained, (\d+) not", re.MULTILINE)
_LIVING = re.compile(r"^  (\S.*)\n    - (.*)\n    \+ (.*)$", re.MULTILINE)
_CASES = re.compile(r'\{"storage": .*\}$', re.MULTILINE)
_DOUBLE = re.compile(r"double faults: (\d+) from seed")
_AGAIN = re.compile(r"^again: (.+)$", re.MULTILINE)
_SUMMARY = re.compile(r"^=*\s*(\d+ \w+.*) in [\d.]+s\b.*$", re.MULTILINE)
_TEST_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped|xfailed)")
_TEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)
_DETAILS = re.compile(r"^=+ (?:FAILURES|ERRORS) =+$", re.MULTILINE)
_PROGRESS = re.compile(r"^([.sxXFE]+)(?:\s*\[ *\d+%\])?(?:\{.*)?\s*$", re.MULTILINE)
_HEADING = re.compile(r"^_{3,} (?:ERROR at \w+ of )?(\S.*?) _{3,}$", re.MULTILINE)


def read_simulator(output: str, ran: Round) -> Seen:
    """Count seeds or schedules and what they came to; each that fails names its own command."""
    failures = []
    for again in _AGAIN.finditer(output):
        before = output[: again.start()].rstrip("\n").split("\n\n")[-1]
        failures.append(Failure(what=before.splitlines()[0], command=again[1]))
    tallies = _TALLY.findall(output)
    counts = _numbers(tallies[-1]) if tallies else {}
    counts.pop("failed", None)
    return Seen(counts=counts, failures=tuple(failures))


def read_tests(output: str, ran: Round) -> Seen:
    """Count tests; each that fails is named with a command that runs it alone, by the same seed.

    Names come at the end. What is killed before leaves the letters of its progress, and a letter of a
    failure is one, though nameless.
    """
    summaries = _SUMMARY.findall(output)
    counts = {f"tests {what}": int(n) for n, what in _TEST_COUNT.findall(summaries[-1])} if summaries else {}
    names = dict.fromkeys(_TEST_FAILED.findall(output))
    failures = [Failure(what=name, command=_alone(name, ran)) for name in names]
    letters = "".join(_PROGRESS.findall(_DETAILS.split(output)[0]))
    if not names and not summaries and (failed := letters.count("F") + letters.count("E")):
        said = f"{failed} of its tests failed before it was stopped and could name them"
        failures.append(Failure(what=said, command=ran.command))
    return Seen(counts=counts, failures=tuple(failures))


def read_kills(output: str, ran: Round) -> Seen:
    """Count processes that were killed, and calls in histories; what fails names its seed and command."""
    counts: Counter[str] = Counter()
    for figures in _MATRIX.findall(output):
        for storage, number in _NAMED_COUNT.findall(figures):
            counts[f"kills at fault points over {storage}"] += int(number)
    for kind, storage, figures in _KILLS.findall(output):
        for name, number in _NAMED_COUNT.findall(figures):
            # The simulator's seeds are something else: one of these is a world of many lives.
            name = {"seeds": "worlds"}.get(name.strip(), name.strip())
            what = name if kind == "kills" else f"{name} in histories"
            counts[f"{what} over {storage}"] += int(number)
    seen = read_tests(output, ran)
    reruns = dict.fromkeys(_RERUN.findall(output))
    named = tuple(Failure(what=what, command=command) for what, command in reruns)
    told = _tests_with_a_rerun(output)
    others = tuple(failure for failure in seen.failures if _title(failure.what) not in told)
    return Seen(counts=counts | _skipped(seen), failures=named + others)


def read_executions(output: str, ran: Round) -> Seen:
    """Count how often the body of a fuzzed test was executed, from the lines that each test reports."""
    lines = [json.loads(line) for line in _EXECUTIONS.findall(output)]
    counts = {"executions": sum(line["executions"] for line in lines), "fuzzed tests": len(lines)}
    seen = read_tests(output, ran)
    return Seen(counts=counts | _skipped(seen), failures=seen.failures)


def read_matrix(output: str, ran: Round) -> Seen:
    """Count single faults from the lines that each operation reports, and double ones from the test's own."""
    counts: Counter[str] = Counter()
    for line in map(json.loads, _CASES.findall(output)):
        counts[f"single faults over {line['storage']}"] += sum(line["cases"].values())
    for number in _DOUBLE.findall(output):
        counts["double faults"] += int(number)
    seen = read_tests(output, ran)
    return Seen(counts=counts | _skipped(seen), failures=seen.failures)


def read_mutants(output: str, ran: Round) -> Seen:
    """Count mutants and what became of them; one that nobody notices or explains fails a finished target."""
    counts: Counter[str] = Counter()
    for made, killed, explained, rest in _MUTANTS.findall(output):
        counts.update({"mutants": int(made), "mutants killed": int(killed)})
        counts.update({"explained": int(explained), "not explained": int(rest)})
    if ran.about.endswith(STILL_OPEN):
        return Seen(counts=counts)
    living = [
        Failure(what=f"in {function} nobody notices {after!r} for {before!r}", command=ran.command)
        for function, before, after in _LIVING.findall(output)
    ]
    return Seen(counts=counts, failures=tuple(living))


def _skipped(seen: Seen) -> Counter[str]:
    """Return how many tests were skipped: of what they would have counted nothing else tells."""
    return Counter({what: number for what, number in seen.counts.items() if what == SKIPPED})


def _tests_with_a_rerun(output: str) -> frozenset[str]:
    """Return the titles of the tests whose failure itself says how to run it again."""
    titles = _HEADING.split(output)
    return frozenset(
        title for title, text in zip(titles[1::2], titles[2::2], strict=True) if _RERUN.search(text)
    )


def _title(name: str) -> str:
    """Return what stands over the failure of a test that is named with its file."""
    return ".".join(name.split("::")[1:])


def _alone(name: str, ran: Round) -> str:
    kept = [word for word in ran.arguments if word.startswith(("--randomly-seed", "-W", "error"))]
    told = {name: value for name, value in ran.environment.items() if not name.endswith("_REPORT")}
    return shell_line(("-m", "pytest", name, *kept), told)


def _numbers(line: str) -> dict[str, int]:
    return {what.strip(): int(number.replace(",", "")) for number, what in _COUNT.findall(line)}
