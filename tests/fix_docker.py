"""The command lines that docker/ has: of compose, cron, systemd and Kubernetes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

DOCKER = Path(__file__).parents[1] / "docker"
JOBS = ("repair", "verify")
PROGRAM = "/opt/custody-sync/bin/custody-sync"


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text()))


def container(job: Any) -> Any:
    """Return the one container of a CronJob."""
    (only,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return only


def command_lines() -> dict[str, list[str]]:
    """Return the arguments of every command line of ours in docker/, by where it stands."""
    found = {
        "compose": yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]["custody"]["command"]
    }
    for line in (DOCKER / "cron/custody-sync").read_text().splitlines():
        if " custody-sync " in line and not line.startswith("#"):
            words = shlex.split(line.partition(" custody-sync ")[2])
            found[f"cron {words[0]}"] = words[: words.index(">/dev/null")]
    for job in JOBS:
        unit = (DOCKER / f"systemd/custody-sync-{job}.service").read_text()
        (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        program, *found[f"systemd {job}"] = shlex.split(start)
        assert program == PROGRAM
        (cron,) = documents(DOCKER / f"kubernetes/{job}.yaml")
        found[f"kubernetes {job}"] = container(cron)["args"]
    return found
