"""search.gfx950.code.calls: what is compiled ahead of time is what the launcher compiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.gfx950.code.calls import specialize

ROOT = Path(__file__).resolve().parents[4]
# In a process of its own, whose driver knows gfx950 only: Triton's launcher compiles each kernel of a program for
# tensors that have storage, and its code and options are compared with ours.
SCRIPT = """
import json, sys
import triton
from triton.compiler import make_backend
from kernels.device import GFX950
from kernels.families import FAMILIES
from kernels.runtime.runner import allocate
from kernels.launches.triton_kernel import backend_options
from kernels.problem import GemmShape
from search.device.ahead import compile_only, target_of
from search.gfx950.code.calls import specialize
compile_only(GFX950)
triton.knobs.compilation.store_binary_only = False
triton.knobs.compilation.disable_line_info = True
backend = make_backend(target_of(GFX950))
family = FAMILIES[sys.argv[1]]
program = family.program(GemmShape(17, 128, 512), family.config(json.loads(sys.argv[2])))
tensors = {b.name: allocate(b, "cpu") for b in program.buffers}
for call in program.calls:
    given = {n: tensors[v] if isinstance(v, str) else v for n, v in call.args.items()}
    options = backend_options(call.options, amd=True)
    launched = call.kernel.function.run(**given, **call.constexprs, **options, grid=call.grid, warmup=True)
    wanted = specialize(program, call)
    plain = lambda value: json.dumps(value, default=sorted)
    ours = {name: plain(value) for name, value in vars(backend.parse_options(dict(wanted.options))).items()}
    differing = sorted(name for name in ours if ours[name] != plain(getattr(launched.metadata, name)))
    print(json.dumps([call.name, launched.asm["amdgcn"] == wanted.compile().assembly, differing]))
"""


@pytest.mark.parametrize(
    ("family", "knobs"),
    [
        ("fused_splitk_workspace", {"split_k": 2, "BLOCK_K": 128, "waves_per_eu": 2}),
        ("staged_triton", {"BLOCK_K": 256}),
    ],
)
def test_code_and_options_are_those_of_a_launch(tmp_path: Path, family: str, knobs: dict[str, int]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, family, json.dumps(knobs)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 2
    assert [answer for answer in answers if answer[1:] != [True, []]] == []


def test_pointers_to_2_GB_and_more_are_named() -> None:
    family = FAMILIES["fused"]
    named = {}
    for N in (1 << 20, (1 << 20) - 64):  # of N x K / 2 bytes with K = 4096
        program = family.program(GemmShape(16, N, 4096), family.config({}))
        named[N] = specialize(program, program.calls[0]).large_pointers
    assert named == {1 << 20: ("b_ptr",), (1 << 20) - 64: ()}
