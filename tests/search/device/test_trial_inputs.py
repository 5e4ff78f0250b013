"""search.device.check: operands that show mistakes, and references of what is compared."""

from __future__ import annotations

import pytest
import torch

from kernels.families import FAMILIES
from kernels.mxfp4.layouts import padded_scale_shape, unshuffle_scales
from kernels.mxfp4.numerics import quantize
from kernels.mxfp4.reference import mxfp4_gemm_reference
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from search.device import check as trial_inputs
from search.device.check import checked_input, compared_rows, copies_of, poison, set_bytes, working_tensors

CPU = torch.device("cpu")
SHAPE = GemmShape(5, 192, 320)  # 10 scale groups, padded to 16; 192 rows, padded to 256


def test_every_pad_of_the_weights_scales_is_nan() -> None:
    weight = checked_input(SHAPE, 1, CPU).weight
    rows, groups = padded_scale_shape(SHAPE.N, SHAPE.K // 32)
    natural = unshuffle_scales(weight.scale, rows, groups)
    assert (natural[SHAPE.N :] == 0xFF).all() and (natural[:, SHAPE.K // 32 :] == 0xFF).all()
    assert (natural[: SHAPE.N, : SHAPE.K // 32] < 0xFF).all()


def test_seeds_differ_and_repeat() -> None:
    first, second, again = (checked_input(SHAPE, seed, CPU) for seed in (1, 2, 1))
    assert not torch.equal(first.a, second.a)
    assert torch.equal(first.a, again.a) and torch.equal(first.weight.data, again.weight.data)


def test_rows_have_different_scales_so_that_a_wrong_scale_byte_shows() -> None:
    scales = checked_input(GemmShape(64, 64, 64), 1, CPU).weight.unshuffled().scales
    assert scales.unique().numel() >= 6


def test_sums_of_products_are_exact_in_fp32_whatever_their_order() -> None:
    # The check asks for the reference within one bf16 step and for equal bits: that needs exact sums.
    given = checked_input(GemmShape(8, 64, 7168), 1, CPU)
    a = quantize(given.a).dequantize(torch.float32)
    products = a[:, None, :] * given.weight.dequantize(torch.float32)[None, :, :]
    shuffled = products[..., torch.randperm(7168, generator=torch.Generator().manual_seed(3))]
    forward, backward = (x.cumsum(-1, dtype=torch.float32)[..., -1] for x in (products, shuffled))
    assert torch.equal(forward, backward)
    assert torch.equal(forward.double(), given.reference)


def test_all_rows_are_compared_where_the_product_is_small_else_the_first_the_last_and_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(1)
    assert compared_rows(GemmShape(33, 64, 64), generator).tolist() == list(range(33))
    monkeypatch.setattr(trial_inputs, "REFERENCE_PRODUCTS", 10 * 64 * 64)
    rows = compared_rows(GemmShape(1000, 64, 64), generator).tolist()
    assert len(set(rows)) == 10 and rows == sorted(rows)
    assert (rows[0], rows[-1]) == (0, 999)


def test_the_reference_is_that_of_the_compared_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_inputs, "REFERENCE_PRODUCTS", 6 * 64 * 64)
    given = checked_input(GemmShape(40, 64, 64), 1, CPU)
    plain = PackedWeight(given.weight.data, given.weight.scale, 64, 64)
    assert given.reference.shape == (6, 64)
    assert torch.equal(given.reference, mxfp4_gemm_reference(given.a, plain)[given.rows])


def test_poison_reaches_outputs_and_workspaces_of_every_type() -> None:
    program = FAMILIES["staged_triton"].program(SHAPE, FAMILIES["staged_triton"].config({"split_k": 2}))
    tensors = working_tensors(program, CPU)
    assert set(tensors) == {"out", "a_codes", "a_scale", "slices"}
    poison(tensors)
    assert tensors["out"].isnan().all() and tensors["slices"].isnan().all()
    assert (tensors["a_codes"] == 0xFF).all() and (tensors["a_scale"] == 0xFF).all()


def test_copies_have_equal_contents_at_addresses_of_their_own() -> None:
    operands = checked_input(SHAPE, 1, CPU).tensors
    sets = copies_of(operands, SHAPE, 3)
    for name in ("a", "b", "b_scale", "out"):
        assert len({one[name].data_ptr() for one in sets}) == 3
    assert all(torch.equal(one["b"], operands["b"]) for one in sets)
    assert set_bytes(sets[0]) == 2 * 5 * 320 + 192 * 160 + 256 * 16 + 2 * 5 * 192
