"""Vectors of all-MiniLM-L6-v2 out of its published weights, by numpy alone.

Runs in a virtual environment of its own and knows nothing of custody-sync: a JSON list of texts comes
in, their vectors go out. The package with the weights is only unpacked, none of its code is run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the model's `model.safetensors` as its authors publish it, whoever packaged it."""
LAYERS, HEADS, MOST_TOKENS, TINY = 6, 12, 256, 1e-12
BATCH = 64


def embedded(texts: Sequence[str]) -> list[list[float]]:
    """Return the vectors: tokens through six layers of attention, averaged, of length one."""
    model, tokens = _opened()
    tokenizer = Tokenizer.from_str(tokens)
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    ids = [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
    found: list[list[float]] = [[] for _ in ids]
    # Those alike in length go together, since what fills up a batch is work for nothing.
    order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        longest = max(len(ids[place]) for place in places)
        batch = np.zeros((len(places), longest), dtype=np.int64)
        mask = np.zeros((len(places), longest), dtype=np.float32)
        for row, place in enumerate(places):
            batch[row, : len(ids[place])] = ids[place]
            mask[row, : len(ids[place])] = 1
        hidden = _encoded(model, batch, mask)
        mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        for place, vector in zip(places, mean.tolist(), strict=True):
            found[place] = vector
    return found


def _opened() -> tuple[dict[str, Any], str]:
    """Return the weights by name and the tokenizer's JSON, out of the package, none of whose code is run."""
    spec = importlib.util.find_spec("all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).parent / "model.zip") as files:
        raw, tokens = files.read("model.safetensors"), files.read("tokenizer.json").decode()
    if hashlib.sha256(raw).hexdigest() != WEIGHTS:
        raise SystemExit("the package holds other weights than those of all-MiniLM-L6-v2")
    size = int.from_bytes(raw[:8], "little")
    model = {}
    for name, of in json.loads(raw[8 : 8 + size]).items():
        if name != "__metadata__" and of["dtype"] == "F32":
            first, last = (8 + size + offset for offset in of["data_offsets"])
            model[name] = np.frombuffer(raw[first:last], dtype=np.float32).reshape(of["shape"])
    return model, tokens


def _encoded(model: dict[str, Any], batch: Any, mask: Any) -> Any:
    """Return BERT's last hidden states."""

    def dense(name: str, x: Any) -> Any:
        return x @ model[f"{name}.weight"].T + model[f"{name}.bias"]

    def normed(name: str, x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(TINY))
        return x * model[f"{name}.weight"] + model[f"{name}.bias"]

    def in_heads(x: Any) -> Any:
        return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)

    words, types = (
        model["embeddings.word_embeddings.weight"],
        model["embeddings.token_type_embeddings.weight"],
    )
    places = model["embeddings.position_embeddings.weight"][: batch.shape[1]]
    x = normed("embeddings.LayerNorm", words[batch] + places + types[0])
    hidden = (1 - mask[:, None, None, :]) * np.float32(-1e9)
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        query, key, value = (
            in_heads(dense(f"{layer}.attention.self.{part}", x)) for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(math.sqrt(query.shape[-1])) + hidden
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (weights / weights.sum(-1, keepdims=True)) @ value
        seen = seen.transpose(0, 2, 1, 3).reshape(x.shape)
        x = normed(f"{layer}.attention.output.LayerNorm", x + dense(f"{layer}.attention.output.dense", seen))
        inner = _gelu(dense(f"{layer}.intermediate.dense", x))
        x = normed(f"{layer}.output.LayerNorm", x + dense(f"{layer}.output.dense", inner))
    return x


def _gelu(x: Any) -> Any:
    """Return x times the normal distribution up to x (Abramowitz and Stegun 7.1.26, to seven digits)."""
    z = np.abs(x) / np.float32(math.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - series * np.exp(-z * z))
    return (x * (1 + erf) / 2).astype(np.float32)


if __name__ == "__main__":
    json.dump(embedded(json.load(sys.stdin)), sys.stdout)
