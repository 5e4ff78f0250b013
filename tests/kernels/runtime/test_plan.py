"""Plans: which kernels run on which addresses, and what the compiler is told of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import torch

from kernels.families import FAMILIES
from kernels.families.fused import SplitKWorkspaceConfig, TileConfig
from kernels.launches.program import KernelCall, PointerSpec, Runner
from kernels.problem import GemmShape
from kernels.runtime.plan import Inputs, build_plan

A, B, SCALE, OUT, WORKSPACE = 1 << 32, 2 << 32, 3 << 32, 4 << 32, 5 << 32
ADDRESSES = (A, B, SCALE, OUT, WORKSPACE)


@dataclass
class Recorder:
    """Compiles nothing; keeps what it was told and every launch by argument name."""

    compiled: list[tuple[str, Mapping[str, PointerSpec]]] = field(default_factory=list)
    launched: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def __call__(self, call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        self.compiled.append((call.name, pointers))

        def run(*values: object) -> None:
            self.launched.append((call.name, dict(zip(call.kernel.arg_names, values, strict=True))))

        return run


def test_a_fused_product_is_one_launch_on_the_callers_addresses() -> None:
    recorder = Recorder()
    plan = build_plan("fused", TileConfig(BLOCK_N=32), Inputs(GemmShape(5, 128, 192), 256), recorder)
    plan.run(ADDRESSES)
    assert plan.workspace_bytes == 0
    [(name, arguments)] = recorder.launched
    assert name == "fused_gemm_kernel"
    run_time = {
        "a_ptr": A,
        "b_ptr": B,
        "b_scale_ptr": SCALE,
        "out_ptr": OUT,
        "M": 5,
        "stride_am": 256,
        "stride_om": 128,
    }
    assert {key: arguments[key] for key in run_time} == run_time
    assert (arguments["N"], arguments["K"], arguments["BLOCK_N"], arguments["STORE"]) == (128, 192, 32, "out")


def test_a_second_run_takes_the_new_addresses() -> None:
    recorder = Recorder()
    plan = build_plan("fused", TileConfig(), Inputs(GemmShape(5, 128, 192), 192), recorder)
    plan.run(ADDRESSES)
    plan.run((A + 64, B + 64, SCALE + 64, OUT + 64, 0))
    names = ("a_ptr", "b_ptr", "b_scale_ptr", "out_ptr")
    assert [recorder.launched[1][1][name] for name in names] == [A + 64, B + 64, SCALE + 64, OUT + 64]
    assert len(recorder.compiled) == 1


def test_a_staged_product_shares_one_workspace_among_its_buffers() -> None:
    # Codes 5 * 96 = 480 bytes, so scales begin at 512; they are padded to 256 x 8 = 2048 bytes; slices follow.
    recorder = Recorder()
    family = FAMILIES["staged_triton"]
    plan = build_plan("staged_triton", family.config({"split_k": 2}), Inputs(GemmShape(5, 128, 192), 192), recorder)
    plan.run(ADDRESSES)
    names = [name for name, _ in recorder.launched]
    quantize, gemm, reduce = (arguments for _, arguments in recorder.launched)
    assert names == ["quantize_kernel", "staged_gemm_kernel", "reduce_kernel"]
    assert (quantize["codes_ptr"], quantize["scale_ptr"]) == (WORKSPACE, WORKSPACE + 512)
    assert (gemm["codes_ptr"], gemm["a_scale_ptr"]) == (WORKSPACE, WORKSPACE + 512)
    assert gemm["out_ptr"] == reduce["slices_ptr"] == WORKSPACE + 2560
    assert reduce["out_ptr"] == OUT
    assert plan.workspace_bytes == 2560 + 2 * 5 * 128 * 4


def test_rows_in_parts_cover_a_and_c_once_and_share_the_workspace() -> None:
    recorder = Recorder()
    config = SplitKWorkspaceConfig(split_k=2)
    inputs = Inputs(GemmShape(600, 128, 192), 200)
    plan = build_plan("fused_splitk_workspace", config, inputs, recorder, limit_bytes=2 * 256 * 128 * 4)
    plan.run(ADDRESSES)
    gemms = [arguments for name, arguments in recorder.launched if name == "fused_gemm_kernel"]
    reductions = [arguments for name, arguments in recorder.launched if name == "reduce_kernel"]
    assert [arguments["M"] for arguments in gemms] == [256, 256, 88]
    assert [arguments["a_ptr"] for arguments in gemms] == [A, A + 256 * 200 * 2, A + 512 * 200 * 2]
    assert [arguments["out_ptr"] for arguments in reductions] == [OUT, OUT + 256 * 128 * 2, OUT + 512 * 128 * 2]
    assert {arguments["out_ptr"] for arguments in gemms} == {WORKSPACE}
    assert plan.workspace_bytes == 2 * 256 * 128 * 4


@pytest.mark.parametrize("operand, bit", [("a", 1), ("b", 2), ("b_scale", 4), ("out", 8)])
def test_only_a_misaligned_operand_loses_its_alignment(operand: str, bit: int) -> None:
    recorder = Recorder()
    build_plan(
        "staged_triton", FAMILIES["staged_triton"].config({}), Inputs(GemmShape(5, 128, 192), 192, bit), recorder
    )
    _, pointers = recorder.compiled[0]
    assert {name for name, pointer in pointers.items() if not pointer.aligned} == {operand}


def test_the_compiler_learns_the_span_of_strided_rows_and_the_types() -> None:
    recorder = Recorder()
    build_plan("fused", TileConfig(), Inputs(GemmShape(5, 128, 192), 1000), recorder)
    _, pointers = recorder.compiled[0]
    assert pointers["a"] == PointerSpec(torch.bfloat16, 2 * (4 * 1000 + 192), aligned=True)
    assert pointers["b"] == PointerSpec(torch.uint8, 128 * 96, aligned=True)
