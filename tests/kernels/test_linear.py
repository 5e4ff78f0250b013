"""MXFP4Linear: from a dense layer or a packed checkpoint, saved, loaded, moved, cast."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

from kernels.linear import MXFP4Linear
from kernels.mxfp4.reference import mxfp4_gemm_reference, to_bf16
from kernels.mxfp4.weights import PackedWeight


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 3, 192, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)


def dense(bias: bool = True) -> nn.Linear:
    torch.manual_seed(2)
    return nn.Linear(192, 128, bias=bias)


def test_a_layer_multiplies_by_the_quantised_weight_and_adds_the_bias(x: torch.Tensor) -> None:
    linear = dense()
    product = to_bf16(mxfp4_gemm_reference(x, PackedWeight.from_dense(linear.weight.detach())))
    expected = product + linear.bias.detach().to(torch.bfloat16)
    assert torch.equal(MXFP4Linear.from_linear(linear)(x), expected)


def test_a_layer_without_a_bias_is_the_product_alone(x: torch.Tensor) -> None:
    layer = MXFP4Linear.from_linear(dense(bias=False))
    assert torch.equal(layer(x), to_bf16(mxfp4_gemm_reference(x, layer.weight)))
    assert sorted(layer.state_dict()) == ["data", "scale"]


def test_a_packed_checkpoint_becomes_a_layer_on_its_own_tensors(x: torch.Tensor) -> None:
    linear = dense(bias=False)
    natural = PackedWeight.from_dense(linear.weight.detach()).unshuffled()
    weight = PackedWeight.from_packed(natural.codes, natural.scales)
    layer = MXFP4Linear.from_weight(weight)
    assert layer.data is weight.data
    assert torch.equal(layer(x), MXFP4Linear.from_linear(linear)(x))


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_round_trips_through_a_file(x: torch.Tensor, assign: bool) -> None:
    trained = MXFP4Linear.from_linear(dense())
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    empty = MXFP4Linear(192, 128)
    assert torch.equal(empty(x), torch.zeros(2, 3, 128, dtype=torch.bfloat16))
    empty.load_state_dict(torch.load(file, weights_only=True), assign=assign)
    assert torch.equal(empty(x), trained(x))


def test_loading_into_a_layer_that_ran_replaces_its_weight(x: torch.Tensor) -> None:
    first, second = MXFP4Linear.from_linear(dense()), MXFP4Linear.from_linear(nn.Linear(192, 128))
    first(x)
    first.load_state_dict(second.state_dict())
    assert torch.equal(first(x), second(x))


def test_the_weight_is_one_value_until_the_tensors_are_replaced() -> None:
    layer = MXFP4Linear.from_linear(dense())
    before = layer.weight
    assert layer.weight is before
    layer.to("meta")
    assert layer.weight is not before
    assert layer.weight.device.type == "meta"


def test_casting_a_model_leaves_the_packed_bytes_alone(x: torch.Tensor) -> None:
    layer = MXFP4Linear.from_linear(dense())
    expected = layer(x)
    assert torch.equal(nn.Sequential(layer).to(torch.bfloat16)(x), expected)


def test_a_copy_of_a_layer_is_independent(x: torch.Tensor) -> None:
    layer = MXFP4Linear.from_linear(dense(bias=False))
    expected = layer(x)
    copied = copy.deepcopy(layer)
    copied.data.zero_()
    assert torch.equal(layer(x), expected)
    assert bool((copied(x) == 0).all())


def test_an_update_in_place_is_seen(x: torch.Tensor) -> None:
    layer, other = MXFP4Linear.from_linear(dense()), MXFP4Linear.from_linear(nn.Linear(192, 128))
    layer(x)
    with torch.no_grad():
        for mine, theirs in zip(layer.buffers(), other.buffers(), strict=True):
            mine.copy_(theirs)
    assert torch.equal(layer(x), other(x))


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize(
    ("name", "dtype"), [("scale", torch.float8_e8m0fnu), ("data", torch.float4_e2m1fn_x2)], ids=["scale", "data"]
)
def test_a_state_dict_of_torchs_own_dtypes_loads_byte_for_byte(name: str, dtype: torch.dtype, assign: bool) -> None:
    trained, model = MXFP4Linear.from_linear(dense()), nn.Sequential(MXFP4Linear(192, 128))
    state = {f"0.{key}": value for key, value in trained.state_dict().items()}
    state[f"0.{name}"] = state[f"0.{name}"].view(dtype)
    model.load_state_dict(state, assign=assign)
    loaded = model.get_buffer(f"0.{name}")
    assert loaded.dtype is torch.uint8
    assert torch.equal(loaded, trained.get_buffer(name))


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("name", ["scale", "data"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.float8_e4m3fn], ids=str)
def test_a_state_dict_of_numbers_is_refused_and_changes_nothing(name: str, dtype: torch.dtype, assign: bool) -> None:
    layer = MXFP4Linear.from_linear(dense())
    before = copy.deepcopy(layer.state_dict())
    state = {**before, name: before[name].to(dtype)}
    with pytest.raises(RuntimeError, match=f"{name} must be uint8 or float"):
        layer.load_state_dict(state, assign=assign)
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())


def test_a_stock_transformer_runs_with_its_feed_forward_replaced_and_says_what_to_keep() -> None:
    torch.manual_seed(6)
    block = nn.TransformerEncoderLayer(128, 4, 192, batch_first=True, dtype=torch.bfloat16).eval()
    x = torch.randn(2, 7, 128).to(torch.bfloat16)
    block.linear1, block.linear2 = MXFP4Linear.from_linear(block.linear1), MXFP4Linear.from_linear(block.linear2)
    called: list[int] = []
    block.linear2.register_forward_hook(lambda *found: called.append(1))
    with torch.no_grad():
        assert (block(x).shape, len(called)) == ((2, 7, 128), 1)
        assert nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()(x).shape == (2, 7, 128)
    block.self_attn.out_proj = MXFP4Linear.from_linear(nn.Linear(128, 128))
    with torch.no_grad(), pytest.raises(TypeError, match=r"was given a PackedWeight.*must keep its nn\.Linear"):
        block(x)


def test_sizes_that_no_kernel_supports_are_refused() -> None:
    with pytest.raises(ValueError, match="K = -64 must be a positive multiple of 64"):
        MXFP4Linear(-64, 192)
    with pytest.raises(ValueError, match="N = 100 must be a positive multiple of 64"):
        MXFP4Linear(192, 100)
    with pytest.raises(ValueError, match="bias must be"):
        MXFP4Linear.from_weight(PackedWeight.from_dense(torch.ones(64, 64)), torch.zeros(32))


def test_a_layer_prints_its_sizes() -> None:
    assert repr(MXFP4Linear(192, 128)) == "MXFP4Linear(in_features=192, out_features=128, bias=True)"


def test_a_layer_tells_models_that_look_at_its_weight_what_its_input_must_be() -> None:
    layer = MXFP4Linear.from_linear(dense())
    assert (layer.weight.dtype, layer.weight.shape, layer.weight.device.type) == (torch.bfloat16, (128, 192), "cpu")


def test_a_layer_made_without_memory_is_filled_later_either_way(x: torch.Tensor) -> None:
    trained = MXFP4Linear.from_linear(dense())
    with torch.device("meta"):
        assigned, emptied = MXFP4Linear(192, 128), copy.deepcopy(MXFP4Linear(192, 128))
    assert assigned(x.to("meta")).shape == (2, 3, 128)
    assigned.load_state_dict(trained.state_dict(), assign=True)
    emptied.to_empty(device="cpu").load_state_dict(trained.state_dict())
    assert torch.equal(assigned(x), trained(x))
    assert torch.equal(emptied(x), trained(x))
    assert MXFP4Linear.from_linear(nn.Linear(192, 128, device="meta")).data.device.type == "meta"


@pytest.mark.parametrize("shape", [(0, 192), (192,), (2, 0, 192)])
def test_no_rows_and_a_single_row_run_and_have_gradients_compiled_too(shape: tuple[int, ...]) -> None:
    layer = MXFP4Linear.from_linear(dense())
    for function in (layer, torch.compile(layer, backend="aot_eager")):
        x = torch.ones(shape, dtype=torch.bfloat16, requires_grad=True)
        y = function(x)
        y.sum().backward()
        assert y.shape == (*shape[:-1], 128)
        assert x.grad is not None and x.grad.shape == shape


def test_a_layer_that_is_packed_already_is_refused() -> None:
    packed = MXFP4Linear.from_linear(nn.Linear(64, 128, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match="packed already: use it as it is"):
        MXFP4Linear.from_linear(packed)  # type: ignore[arg-type]
