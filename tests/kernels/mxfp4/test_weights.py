"""kernels.mxfp4.weights: every way to build a PackedWeight gives the same one, and wrong tensors are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from kernels.mxfp4.layouts import padded_scale_shape, scale_offset, weight_offset
from kernels.mxfp4.numerics import ExponentRule, Mxfp4Tensor, quantize
from kernels.mxfp4.weights import PackedWeight

SHAPES = [(64, 64), (64, 448), (128, 576), (320, 256)]


def dense(N: int, K: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(N, K, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def same(a: PackedWeight, b: PackedWeight) -> bool:
    return (a.N, a.K) == (b.N, b.K) and torch.equal(a.data, b.data) and torch.equal(a.scale, b.scale)


@pytest.mark.parametrize(("N", "K"), SHAPES)
@pytest.mark.parametrize("rule", ["even", "floor", "rceil"])
def test_a_dense_weight_dequantises_to_its_quantised_values(N: int, K: int, rule: ExponentRule) -> None:
    weight = PackedWeight.from_dense(dense(N, K), rule)
    expected = quantize(dense(N, K), rule)
    assert (weight.N, weight.K, weight.layout, weight.device.type) == (N, K, "shuffled", "cpu")
    assert torch.equal(weight.unshuffled().codes, expected.codes)
    assert torch.equal(weight.unshuffled().scales, expected.scales)
    assert torch.equal(weight.dequantize(), expected.dequantize())
    assert weight.dequantize().dtype == torch.float32


@pytest.mark.parametrize(("N", "K"), SHAPES)
def test_bytes_lie_where_the_layout_formulas_say_and_pads_are_zero(N: int, K: int) -> None:
    quantized = quantize(dense(N, K))
    weight = PackedWeight.from_packed(quantized.codes, quantized.scales)
    assert weight.scale.shape == padded_scale_shape(N, K // 32)
    rebuilt = torch.zeros(weight.scale.numel(), dtype=torch.uint8)
    n = torch.arange(N)[:, None]
    rebuilt[scale_offset(n, torch.arange(K // 32)[None], weight.scale.shape[1])] = quantized.scales
    assert torch.equal(weight.scale.flatten(), rebuilt)
    offsets = weight_offset(n, torch.arange(K // 2)[None], K // 2)
    assert torch.equal(weight.data.flatten()[offsets], quantized.codes)


def test_all_constructors_agree_on_bytes_and_on_the_torch_types() -> None:
    quantized = quantize(dense(128, 192))
    weight = PackedWeight.from_dense(dense(128, 192))
    codes, scales = quantized.codes, quantized.scales
    assert same(weight, PackedWeight.from_packed(codes, scales))
    typed = PackedWeight.from_packed(codes.view(torch.float4_e2m1fn_x2), scales.view(torch.float8_e8m0fnu))
    assert same(weight, typed)
    data, scale = weight.data.view(torch.float4_e2m1fn_x2), weight.scale.view(torch.float8_e8m0fnu)
    assert same(weight, PackedWeight.from_shuffled(data, scale, N=128, K=192))


def test_wrapping_shuffled_tensors_copies_nothing() -> None:
    source = PackedWeight.from_dense(dense(64, 64))
    data = source.data.view(torch.float4_e2m1fn_x2)
    weight = PackedWeight.from_shuffled(data, source.scale, N=64, K=64)
    assert weight.data.data_ptr() == source.data.data_ptr()
    assert weight.scale.data_ptr() == source.scale.data_ptr()
    source.data.zero_()  # an update in place is seen: nothing derived from the bytes is kept
    assert not weight.dequantize().any()


def test_values_do_not_depend_on_the_pads() -> None:
    weight = PackedWeight.from_dense(dense(64, 192))
    poisoned = torch.full_like(weight.scale, 0xFF)
    offsets = scale_offset(torch.arange(64)[:, None], torch.arange(6)[None], 8)
    poisoned.view(-1)[offsets] = weight.scale.view(-1)[offsets]
    other = PackedWeight.from_shuffled(weight.data, poisoned, N=64, K=192)
    assert int((poisoned == 0xFF).sum()) == 256 * 8 - 64 * 6
    assert torch.equal(other.dequantize(), weight.dequantize())


def test_a_nan_scale_makes_its_block_nan() -> None:
    quantized = quantize(dense(64, 64))
    quantized.scales[3, 1] = 255
    values = PackedWeight.from_packed(quantized.codes, quantized.scales).dequantize()
    assert values[3, 32:].isnan().all() and int(values.isnan().sum()) == 32


def test_moving_to_the_same_device_shares_tensors() -> None:
    weight = PackedWeight.from_dense(dense(64, 64))
    moved = weight.to("cpu")
    assert same(moved, weight) and moved.data.data_ptr() == weight.data.data_ptr()
    assert weight.to("meta").device == weight.to(torch.device("meta")).scale.device == torch.device("meta")


def test_fields_cannot_be_reassigned() -> None:
    weight = PackedWeight.from_dense(dense(64, 64))
    with pytest.raises(dataclasses.FrozenInstanceError):
        weight.N = 128  # type: ignore[misc]


def natural(N: int, K: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(N, K // 2, dtype=torch.uint8), torch.zeros(N, K // 32, dtype=torch.uint8)


BUILDERS: list[Callable[[int, int], PackedWeight]] = [
    lambda N, K: PackedWeight.from_dense(torch.zeros(N, K, dtype=torch.bfloat16)),
    lambda N, K: PackedWeight.from_packed(*natural(N, K)),
    lambda N, K: PackedWeight.from_shuffled(*natural(N, K), N=N, K=K),
]


@pytest.mark.parametrize("build", BUILDERS, ids=["dense", "packed", "shuffled"])
@pytest.mark.parametrize(
    ("N", "K", "named"), [(96, 64, "N = 96"), (64, 32, "K = 32"), (0, 64, "N = 0"), (32, 96, "N = 32")]
)
def test_unsupported_extents_are_named(build: Callable[[int, int], PackedWeight], N: int, K: int, named: str) -> None:
    with pytest.raises(ValueError, match=f"{named} must be a positive multiple of 64"):
        build(N, K)


def test_a_packed_extent_given_as_k_is_refused() -> None:
    weight = PackedWeight.from_dense(dense(64, 256))
    with pytest.raises(ValueError, match=r"data must be \[64, 64\], got \[64, 128\]"):
        PackedWeight.from_shuffled(weight.data, weight.scale, N=64, K=128)


def test_wrong_tensors_are_refused() -> None:
    weight = PackedWeight.from_dense(dense(64, 64))
    data, scale = weight.data, weight.scale
    with pytest.raises(ValueError, match=r"scale must be \[256, 8\], got \[64, 2\]"):
        PackedWeight.from_shuffled(data, torch.zeros(64, 2, dtype=torch.uint8), N=64, K=64)
    with pytest.raises(TypeError, match=r"data must be uint8.*got torch\.int8"):
        PackedWeight.from_shuffled(data.to(torch.int8), scale, N=64, K=64)
    with pytest.raises(ValueError, match=r"data must be contiguous, got strides \(1, 64\)"):
        PackedWeight.from_shuffled(torch.zeros(32, 64, dtype=torch.uint8).T, scale, N=64, K=64)
    with pytest.raises(ValueError, match="data is on meta, scale on cpu"):
        PackedWeight.from_shuffled(data.to("meta"), scale, N=64, K=64)
    with pytest.raises(ValueError, match=r"disagree: \(64, 32\) and \(64, 3\)"):
        PackedWeight.from_packed(torch.zeros(64, 32, dtype=torch.uint8), torch.zeros(64, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"must be a matrix \[N, K\], got \(2, 64, 64\)"):
        PackedWeight.from_dense(torch.zeros(2, 64, 64, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"codes must be a matrix"):
        PackedWeight.from_packed(*(t[None] for t in natural(64, 64)))
    with pytest.raises(TypeError, match="float64"):
        PackedWeight.from_dense(torch.zeros(64, 64, dtype=torch.float64))
    with pytest.raises(ValueError, match="unknown layout 'natural'"):
        PackedWeight(data, scale, N=64, K=64, layout="natural")  # type: ignore[arg-type]


def test_an_unshuffled_weight_is_a_plain_mxfp4_tensor() -> None:
    natural_order = PackedWeight.from_dense(dense(64, 64)).unshuffled()
    assert isinstance(natural_order, Mxfp4Tensor) and natural_order.K == 64


def test_codes_with_the_bytes_of_a_block_in_a_dimension_of_their_own_are_the_same_weight() -> None:
    natural = PackedWeight.from_dense(torch.randn(64, 128, generator=torch.Generator().manual_seed(3))).unshuffled()
    flat = PackedWeight.from_packed(natural.codes, natural.scales)
    split = PackedWeight.from_packed(natural.codes.view(64, 4, 16), natural.scales)
    assert torch.equal(split.data, flat.data)
    assert torch.equal(split.scale, flat.scale)
    experts, scales = natural.codes.view(1, 64, 4, 16), natural.scales.view(1, 64, 4)
    with pytest.raises(ValueError, match=r"codes must be a matrix .*got \[1, 64, 64\]; give one of its 1 weights"):
        PackedWeight.from_packed(experts, scales)


def test_codes_and_scales_may_not_be_of_each_others_dtypes() -> None:
    natural = PackedWeight.from_dense(torch.ones(64, 64)).unshuffled()
    with pytest.raises(TypeError, match=r"codes must be uint8 or float4_e2m1fn_x2, got torch\.float8_e8m0fnu"):
        PackedWeight.from_packed(natural.codes.view(torch.float8_e8m0fnu), natural.scales)
    with pytest.raises(TypeError, match=r"scales must be uint8 or float8_e8m0fnu, got torch\.float32"):
        PackedWeight.from_packed(natural.codes, natural.scales.float())


def test_a_torch_function_on_a_packed_weight_names_the_way() -> None:
    weight = PackedWeight.from_dense(torch.ones(64, 64))
    with pytest.raises(TypeError, match="linear was given a PackedWeight, which is no tensor; call the MXFP4Linear"):
        torch.nn.functional.linear(torch.ones(1, 64, dtype=torch.bfloat16), weight)  # type: ignore[arg-type]


def test_codes_that_aiter_has_shuffled_are_not_shuffled_again() -> None:
    codes, scales = torch.zeros(256, 128, dtype=torch.uint8), torch.full((256, 8), 127, dtype=torch.uint8)
    assert PackedWeight.from_packed(codes, scales).N == 256
    codes.is_shuffled = True  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="shuffled already, as AITER marks them: use from_shuffled"):
        PackedWeight.from_packed(codes, scales)
