"""The linear layers of a model, derived from the public fields of its Hugging Face ``config.json``.

Source of the rules: the model files of the ``transformers`` library (llama, qwen3_moe, deepseek_v3, gpt_oss, mixtral,
glm4_moe). Attention is either grouped-query or DeepSeek's low-rank one. Column-parallel layers are cut along N,
row-parallel ones along K; low-rank projections are whole on every rank, a key or value head is on several ranks where
there are fewer heads than ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from kernels.errors import InputError
from kernels.problem import GemmShape

GRANULE = 64  # of N and K, see GemmShape
HEADER = """\
# Linear layers of {name}, derived from its config.json by `shapes from-config`.
# M is the number of tokens. M, N, K count logical elements: K is not the packed K/2 of the weight's bytes.
# A name that ends in .tp8 is the part of one of 8 tensor-parallel ranks.
# calls: how often a step runs the layer; an expert's tokens are M * top_k / experts.
"""


@dataclass(frozen=True)
class ModelLayer:
    """One linear layer.

    Args:
        name: For people; ends in ``.tp8`` and the like where it is a part.
        N: Columns of its output.
        K: Columns of its input.
        calls: Transformer layers that have it.
        tp: Ranks that share the model.
        source: How N and K follow from the configuration.
        experts: How many alike there are, of which each token takes ``top_k``; 0 of a dense layer.
        M: Ladder of its own, "" for that of the model.
    """

    name: str
    N: int
    K: int
    calls: int
    tp: int
    source: str
    experts: int = 0
    top_k: int = 0
    M: str = ""

    @property
    def refusal(self) -> str:
        """Why no kernel family computes it; "" where one does."""
        if not (self.N and self.K):
            return f"cannot be cut into {self.tp} equal parts"
        try:
            GemmShape(1, self.N, self.K)
        except ValueError as error:
            return str(error)
        return ""


@dataclass(frozen=True)
class Fields:
    """Fields of a ``config.json`` that name themselves when they are missing.

    Args:
        values: Its content, that of ``text_config`` where the model has several parts.
    """

    path: Path
    values: Mapping[str, Any]

    def count(self, *names: str, default: int | None = None) -> int:
        """The first of ``names`` that is there.

        Raises:
            InputError: None is, and there is no default; or it is no positive whole number.
        """
        value = next((self.values[name] for name in names if self.values.get(name) is not None), default)
        if value is None:
            raise InputError(f"{self.path}: has no {' or '.join(names)}; is it the config.json of a language model?")
        if isinstance(value, bool) or not isinstance(value, int) or value < (0 if default is not None else 1):
            raise InputError(f"{self.path}: {names[0]} = {value!r} is no count; correct it")
        return value

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None


def load_config(path: Path) -> Fields:
    """The fields of ``path``.

    Raises:
        InputError: No file, or no JSON mapping.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; name the config.json of a model") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}); name the config.json of a model") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: is no mapping; name the config.json of a model")
    return Fields(path, content.get("text_config", content))


def parse_ranks(words: Sequence[str]) -> tuple[int, ...]:
    """Numbers of ranks, each once.

    Raises:
        InputError: One is no whole number of 1 or more.
    """
    wrong = [word for word in words if not word.isdecimal() or int(word) < 1]
    if wrong or not words:
        raise InputError(
            f"--tp {','.join(words)!r}: {wrong[0] if wrong else 'nothing'!r} is no number of ranks; write 1,8"
        )
    return tuple(dict.fromkeys(int(word) for word in words))


def model_layers(fields: Fields, ranks: Sequence[int]) -> list[ModelLayer]:
    """The layers of the model for each number of tensor-parallel ranks; those that no kernel computes included.

    Raises:
        InputError: A field is missing, or heads cannot be shared by so many ranks.
    """
    return [layer for tp in ranks for layer in _of_ranks(fields, tp)]


def _of_ranks(fields: Fields, tp: int) -> Iterator[ModelLayer]:
    attention = _low_rank_attention if fields.has("kv_lora_rank") else _grouped_attention
    yield from attention(fields, tp)
    yield from _feed_forward(fields, tp)
    N, K = fields.count("vocab_size"), fields.count("hidden_size")
    head = ModelLayer("lm_head", N, K, 1, 1, "N = vocab_size; K = hidden_size", M="1..512")
    yield _cut(head, "N", tp)


def _cut(layer: ModelLayer, side: Literal["N", "K"], tp: int) -> ModelLayer:
    """The part of a rank that has some columns of the output (N), or of the input (K)."""
    if tp == 1:
        return layer
    whole: int = getattr(layer, side)
    part: dict[str, Any] = {side: whole // tp if whole % tp == 0 else 0}
    source = f"{layer.source}; {side} / {tp} on a rank"
    return replace(layer, name=f"{layer.name}.tp{tp}", tp=tp, source=source, **part)


def _grouped_attention(fields: Fields, tp: int) -> Iterator[ModelLayer]:
    hidden, heads, depth = (fields.count(name) for name in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    kv_heads = fields.count("num_key_value_heads", default=heads)
    size = fields.count("head_dim", default=hidden // heads)
    if heads % tp or (kv_heads % tp and tp % kv_heads):
        raise InputError(f"{fields.path}: {heads} heads and {kv_heads} key-value heads do not fit on {tp} ranks")
    mine, kv_mine = heads // tp, max(1, kv_heads // tp)
    source = f"N = ({mine} heads + 2 * {kv_mine} key-value heads) * {size}; K = hidden_size"
    suffix = "" if tp == 1 else f".tp{tp}"
    yield ModelLayer(f"qkv_proj{suffix}", (mine + 2 * kv_mine) * size, hidden, depth, tp, source)
    yield _cut(
        ModelLayer("o_proj", hidden, heads * size, depth, 1, f"N = hidden_size; K = {heads} heads * {size}"), "K", tp
    )


def _low_rank_attention(fields: Fields, tp: int) -> Iterator[ModelLayer]:
    names = ("hidden_size", "num_attention_heads", "num_hidden_layers", "kv_lora_rank", "qk_rope_head_dim")
    hidden, heads, depth, kv_rank, rope = map(fields.count, names)
    nope, value = fields.count("qk_nope_head_dim"), fields.count("v_head_dim")
    if heads % tp:
        raise InputError(f"{fields.path}: {heads} heads do not fit on {tp} ranks")
    if fields.has("q_lora_rank"):
        q_rank = fields.count("q_lora_rank")
        whole = f"N = q_lora_rank + kv_lora_rank + qk_rope_head_dim = {q_rank} + {kv_rank} + {rope}; K = hidden_size"
        yield ModelLayer(
            "fused_qkv_a_proj", q_rank + kv_rank + rope, hidden, depth, tp, f"{whole}; the same on every rank"
        )
        source = f"N = {heads} heads * ({nope} + {rope}); K = q_lora_rank"
        yield _cut(ModelLayer("q_b_proj", heads * (nope + rope), q_rank, depth, 1, source), "N", tp)
    else:
        source = f"N = {heads} heads * ({nope} + {rope}); K = hidden_size"
        yield _cut(ModelLayer("q_proj", heads * (nope + rope), hidden, depth, 1, source), "N", tp)
        whole = f"N = kv_lora_rank + qk_rope_head_dim = {kv_rank} + {rope}; K = hidden_size"
        yield ModelLayer("kv_a_proj_with_mqa", kv_rank + rope, hidden, depth, tp, f"{whole}; the same on every rank")
    source = f"N = {heads} heads * ({nope} + {value}); K = kv_lora_rank"
    yield _cut(ModelLayer("kv_b_proj", heads * (nope + value), kv_rank, depth, 1, source), "N", tp)
    yield _cut(
        ModelLayer("o_proj", hidden, heads * value, depth, 1, f"N = hidden_size; K = {heads} heads * {value}"), "K", tp
    )


def _feed_forward(fields: Fields, tp: int) -> Iterator[ModelLayer]:
    depth = fields.count("num_hidden_layers")
    experts = fields.count("n_routed_experts", "num_local_experts", "num_experts", default=0)
    sparse = _sparse_layers(fields, depth) if experts else 0
    if depth > sparse:
        yield from _gated("", fields, fields.count("intermediate_size"), depth - sparse, tp)
    if sparse:
        size = fields.count("moe_intermediate_size", "intermediate_size")
        top_k = fields.count("num_experts_per_tok", "experts_per_token")
        yield from (replace(one, experts=experts, top_k=top_k) for one in _gated("expert_", fields, size, sparse, tp))
        shared = fields.count(
            "shared_expert_intermediate_size", default=fields.count("n_shared_experts", default=0) * size
        )
        if shared:
            yield from _gated("shared_expert_", fields, shared, sparse, tp)


def _sparse_layers(fields: Fields, depth: int) -> int:
    """How many transformer layers have experts."""
    dense = fields.count("first_k_dense_replace", default=0)
    every = fields.count("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step", default=1)
    excluded = set(fields.values.get("mlp_only_layers") or ())
    return sum(layer >= dense and (layer + 1) % max(1, every) == 0 and layer not in excluded for layer in range(depth))


def _gated(prefix: str, fields: Fields, size: int, calls: int, tp: int) -> Iterator[ModelLayer]:
    hidden = fields.count("hidden_size")
    whole = size % tp == 0  # a rank has the same columns of both halves
    up = ModelLayer(
        f"{prefix}gate_up_proj", 2 * size if whole else 0, hidden, calls, 1, f"N = 2 * {size}; K = hidden_size"
    )
    yield _cut(up, "N", tp)
    yield _cut(ModelLayer(f"{prefix}down_proj", hidden, size, calls, 1, f"N = hidden_size; K = {size}"), "K", tp)


def shapes_text(fields: Fields, ranks: Sequence[int], name: str) -> str:
    """A shapes file with the layers of the model; those that no kernel computes are listed in a comment."""
    layers = model_layers(fields, ranks)
    kept = [layer for layer in layers if not layer.refusal]
    if not kept:
        raise InputError(f"{fields.path}: no layer has N and K that are multiples of {GRANULE}")
    left_out = "".join(f"# Left out: {layer.name}: {layer.refusal}.\n" for layer in layers if layer.refusal)
    body = "".join(f"  - {_flow(layer, tps)}\n" for layer, tps in _unique(kept).items())
    source = f"{fields.path.name} of {name}"
    return f"{HEADER.format(name=name)}{left_out}name: {name}\nsource: {source}\nM: 1..8192\nlayers:\n{body}"


def _unique(layers: Sequence[ModelLayer]) -> dict[ModelLayer, list[int]]:
    """Layers that are the same on any number of ranks once, with all of them."""
    ranks: dict[ModelLayer, list[int]] = {}
    for layer in layers:
        ranks.setdefault(replace(layer, tp=1), []).append(layer.tp)
    return ranks


def _flow(layer: ModelLayer, tps: list[int]) -> str:
    values: dict[str, Any] = {"name": layer.name, "N": layer.N, "K": layer.K, "calls": layer.calls, "tp": tps}
    values |= {"experts": layer.experts, "top_k": layer.top_k} if layer.experts else {}
    values |= {"M": layer.M} if layer.M else {}
    values["source"] = layer.source
    text: str = yaml.safe_dump(values, default_flow_style=True, sort_keys=False, width=1 << 30)
    return text.strip()
