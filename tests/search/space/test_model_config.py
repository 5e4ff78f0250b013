"""Layers from the public fields of five model families' config.json; every extent is worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernels.errors import InputError
from search.space.model_config import Fields, ModelLayer, load_config, model_layers, parse_ranks, shapes_text
from search.space.shapes import load_shapes

LLAMA = {
    "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
    "num_hidden_layers": 80, "vocab_size": 128256,
}  # fmt: skip
DEEPSEEK = {
    "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128, "num_hidden_layers": 61,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "vocab_size": 129280,
}  # fmt: skip
QWEN = {
    "hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_hidden_layers": 94,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936,
}  # fmt: skip
GPT_OSS = {
    "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_hidden_layers": 36,
    "intermediate_size": 2880, "num_local_experts": 128, "num_experts_per_tok": 4, "vocab_size": 201088,
}  # fmt: skip
MIXTRAL = {
    "hidden_size": 6144, "num_attention_heads": 48, "num_key_value_heads": 8, "intermediate_size": 16384,
    "num_hidden_layers": 56, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32768,
}  # fmt: skip


def layers(config: dict[str, Any], *ranks: int) -> dict[str, ModelLayer]:
    return {layer.name: layer for layer in model_layers(Fields(Path("config.json"), config), ranks or (1,))}


def extents(config: dict[str, Any], *ranks: int) -> dict[str, tuple[int, int, int]]:
    return {name: (layer.N, layer.K, layer.calls) for name, layer in layers(config, *ranks).items()}


def test_llama_has_grouped_attention_and_a_gated_feed_forward() -> None:
    assert extents(LLAMA) == {
        "qkv_proj": (10240, 8192, 80),  # (64 + 2 * 8) heads * 128
        "o_proj": (8192, 8192, 80),
        "gate_up_proj": (57344, 8192, 80),
        "down_proj": (8192, 28672, 80),
        "lm_head": (128256, 8192, 1),
    }
    assert extents(LLAMA, 8)["qkv_proj.tp8"] == (1280, 8192, 80)
    assert extents(LLAMA, 8)["down_proj.tp8"] == (8192, 3584, 80)


def test_deepseek_has_low_rank_attention_dense_layers_and_shared_experts() -> None:
    assert extents(DEEPSEEK, 8) == {
        "fused_qkv_a_proj": (2112, 7168, 61),  # 1536 + 512 + 64, the same on every rank
        "q_b_proj.tp8": (3072, 1536, 61),  # 16 heads * 192
        "kv_b_proj.tp8": (4096, 512, 61),  # 16 heads * 256
        "o_proj.tp8": (7168, 2048, 61),
        "gate_up_proj.tp8": (4608, 7168, 3),
        "down_proj.tp8": (7168, 2304, 3),
        "expert_gate_up_proj.tp8": (512, 7168, 58),
        "expert_down_proj.tp8": (7168, 256, 58),
        "shared_expert_gate_up_proj.tp8": (512, 7168, 58),
        "shared_expert_down_proj.tp8": (7168, 256, 58),
        "lm_head.tp8": (16160, 7168, 1),
    }
    expert = layers(DEEPSEEK, 8)["expert_down_proj.tp8"]
    assert (expert.experts, expert.top_k) == (256, 8)


def test_without_a_rank_of_q_deepseek_projects_it_at_once() -> None:
    lite = {**DEEPSEEK, "q_lora_rank": None, "hidden_size": 2048, "num_attention_heads": 16}
    found = extents(lite)
    assert found["q_proj"] == (3072, 2048, 61) and found["kv_a_proj_with_mqa"] == (576, 2048, 61)


def test_qwen_copies_a_key_value_head_to_the_ranks_that_share_it() -> None:
    found = extents(QWEN, 1, 8)
    assert found["qkv_proj"] == (9216, 4096, 94) and found["qkv_proj.tp8"] == (1280, 4096, 94)  # (8 + 2 * 1) * 128
    assert found["expert_gate_up_proj.tp8"] == (384, 4096, 94)
    assert "gate_up_proj" not in found  # every layer has experts


def test_gpt_oss_and_mixtral_name_the_size_of_an_expert_otherwise() -> None:
    assert extents(GPT_OSS)["expert_gate_up_proj"] == (5760, 2880, 36)
    assert extents(GPT_OSS)["qkv_proj"] == (5120, 2880, 36)
    assert extents(MIXTRAL)["expert_down_proj"] == (6144, 16384, 56)
    assert layers(MIXTRAL)["expert_down_proj"].top_k == 2


def test_layers_without_experts_are_counted_apart() -> None:
    found = extents({**QWEN, "mlp_only_layers": [0, 1], "decoder_sparse_step": 2})
    # Layers 2, 4, ... 94 (counted from 1) have experts, but the second is excluded.
    assert found["expert_down_proj"][2] == 46 and found["down_proj"] == (4096, 12288, 48)


@pytest.mark.parametrize(
    ("config", "name"),
    [(LLAMA, "llama-3.3-70b"), (DEEPSEEK, "deepseek-r1"), (QWEN, "qwen3-235b"), (GPT_OSS, "gpt-oss-120b")],
)
def test_the_shipped_sets_follow_from_the_configs(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    path = tmp_path / "derived.yaml"
    path.write_text(shapes_text(Fields(Path("config.json"), config), (1, 8), name))
    shipped, derived = load_shapes(Path(name)), load_shapes(path)
    assert {(s.N, s.K) for s in derived.shapes} <= {(s.N, s.K) for s in shipped.shapes}
    counted = {(layer.N, layer.K, layer.tp, layer.calls, layer.experts) for layer in shipped.layers}
    assert {(one.N, one.K, one.tp, one.calls, one.experts) for one in derived.layers} == counted


def test_what_no_kernel_computes_is_named_and_left_out() -> None:
    text = shapes_text(Fields(Path("config.json"), DEEPSEEK), (8,), "DeepSeek-R1")
    assert "# Left out: lm_head.tp8: N = 16160 must be a positive multiple of 64." in text
    text = shapes_text(Fields(Path("config.json"), {**LLAMA, "intermediate_size": 28676}), (8,), "odd")
    assert "# Left out: gate_up_proj.tp8: cannot be cut into 8 equal parts." in text


@pytest.mark.parametrize(
    ("content", "ranks", "problem"),
    [
        ({**LLAMA, "hidden_size": None}, (1,), "has no hidden_size; is it the config.json of a language model?"),
        ({**LLAMA, "hidden_size": "big"}, (1,), "hidden_size = 'big' is no count"),
        (LLAMA, (3,), "64 heads and 8 key-value heads do not fit on 3 ranks"),
        (DEEPSEEK, (3,), "128 heads do not fit on 3 ranks"),
    ],
)
def test_a_config_that_cannot_be_used_is_one_line(
    content: dict[str, Any], ranks: tuple[int, ...], problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        shapes_text(Fields(Path("config.json"), content), ranks, "x")
    assert str(caught.value).startswith("config.json: ") and problem in str(caught.value)


def test_files_and_words_that_are_none_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(InputError, match=r"no such file; name the config\.json of a model"):
        load_config(path)
    for text in ("{", "[]", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError, match=r"name the config\.json of a model"):
            load_config(path)
    path.write_text(json.dumps({"text_config": LLAMA}))
    assert load_config(path).count("hidden_size") == 8192
    with pytest.raises(InputError, match="--tp '1,x': 'x' is no number of ranks; write 1,8"):
        parse_ranks(["1", "x"])
