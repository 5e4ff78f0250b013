"""search.device.ahead: what it compiles is what a launch finds in Triton's cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compiled_programs import skip_unless_here

from kernels.families import triton_functions

ROOT = Path(__file__).resolve().parents[3]
# In a process of its own: compile ahead, forget what is in memory, then take the launcher's path with tensors that
# have storage, under the same driver, and say what it found in the cache.
SCRIPT = """
import json, sys
import torch, triton
from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.runtime.runner import allocate
from kernels.problem import GemmShape
from search.device.ahead import compile_ahead, compile_only
device = DeviceKey(*json.loads(sys.argv[1]))
compile_only(device)
family = FAMILIES[sys.argv[2]]
program = family.program(GemmShape(16, 128, 256), family.config(json.loads(sys.argv[3])))
ahead = compile_ahead(program, device)
hits = []
triton.knobs.compilation.listener = lambda *, cache_hit, **rest: hits.append(cache_hit)
tensors = {b.name: allocate(b, "cpu") for b in program.buffers}
assert all(t.data_ptr() % 16 == 0 for t in tensors.values())
for call in program.calls:
    call.kernel.function.device_caches.clear()
    given = {n: tensors[v] if isinstance(v, str) else v for n, v in call.args.items()}
    call.kernel.function.run(**given, **call.constexprs, **call.kernel.options(call), grid=call.grid, warmup=True)
print(json.dumps({**vars(ahead), "hits": hits}))
"""


def run(cache: Path, *arguments: object, script: str = SCRIPT) -> Any:
    texts = [given if isinstance(given, str) else json.dumps(given) for given in arguments]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *texts],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "device, family, knobs",
    [
        (["sm_90", 132], "fused_splitk_workspace", {"quantizer": "software", "a_operand": "bf16", "BLOCK_K": 128}),
        (["gfx950", 256], "fused", {"BLOCK_K": 256}),
    ],
)
def test_a_launch_finds_every_kernel_compiled_ahead(
    tmp_path: Path, device: list[object], family: str, knobs: dict[str, object]
) -> None:
    answer = run(tmp_path, device, family, knobs)
    assert not answer["cached"] and answer["compile_s"] > 0 and answer["lds_bytes"] > 0
    assert answer["hits"] == [True] * answer["kernels"]


KEYS = """
from kernels.families import triton_functions
from kernels.device import DeviceKey
from search.device.ahead import compile_only
compile_only(DeviceKey("sm_90", 132))
print([kernel.hash is not None for kernel in triton_functions()])
"""


def test_a_compiling_process_settles_its_cache_keys_before_its_first_candidate() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KEYS],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.lower()) == [True] * len(triton_functions())


# What a launch that may begin before the one before it has ended does before it waits, by target.
OVERLAP = """
import json, re, sys
import triton
from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.launches.program import PointerSpec
from kernels.problem import GemmShape
from kernels.runtime.runner import TORCH_DTYPES
from search.device.ahead import compile_only
compile_only(DeviceKey(*json.loads(sys.argv[1])))
triton.knobs.compilation.store_binary_only = False
found = []
for name in ("fused", "fused_splitk_atomic", "fused_splitk_ticket", "fused_splitk_workspace", "staged_triton",
             "staged_splitk_ticket"):
    family, split = FAMILIES[name], {} if name == "fused" else {"split_k": 2}
    knobs = {"quantizer": "software", "a_operand": "bf16", "BLOCK_K": 128, **split}
    program = family.program(GemmShape(16, 128, 512), family.config(knobs))
    pointers = {b.name: PointerSpec(TORCH_DTYPES[b.dtype], b.bytes, aligned=True) for b in program.buffers}
    for call in program.calls:
        given = {n: pointers[v] if isinstance(v, str) else v for n, v in call.args.items()}
        options = call.kernel.options(call)
        made = call.kernel.function.warmup(grid=call.grid, **given, **call.constexprs, **options)
        before, waits, _ = made.asm["ptx"].partition("griddepcontrol.wait")
        touched = re.findall(r"(?:ld|st|red|atom)[.a-z]*\\.global|cp\\.async", before)
        found.append([call.name, options.get("launch_pdl", False), bool(waits), bool(touched)])
print(json.dumps(found))
"""


def test_a_launch_that_may_begin_early_touches_no_memory_before_it_waits(tmp_path: Path) -> None:
    found = run(tmp_path, ["sm_90", 132], script=OVERLAP)
    assert [name.removesuffix("_kernel") for name, *_ in found] == [
        "fused_gemm", "zero", "fused_gemm", "reduce", "fused_ticket", "fused_gemm", "reduce",
        "round", "decoded_gemm", "reduce", "round", "decoded_ticket",
    ]  # fmt: skip
    assert [row[1:] for row in found] == [[True, True, False]] * len(found)  # early, waits, touches nothing before
    older = run(tmp_path, ["sm_80", 108], script=OVERLAP)
    assert [name for name, *_ in older] == [name for name, *_ in found]
    assert not any(early or waits for _, early, waits, _ in older)


# On one machine: compile and pack. On another, which has an empty cache: unpack, and compile what is there already.
SENT = """
import json, pickle, sys
from pathlib import Path
from kernels.device import GFX950
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.rocm import cache
from search.device.ahead import compile_only, keep_artefacts
from search.evaluation import Candidate
from search.evaluators.device import compile_to_send
compile_only(GFX950)
parcel = Path(sys.argv[1])
if parcel.exists():
    keep_artefacts(pickle.loads(parcel.read_bytes()))
    vars(cache)["compile_hip"] = vars(cache)["assemble"] = sys.exit  # nothing is left to be built
family = FAMILIES[sys.argv[2]]
candidate = Candidate(GemmShape(16, 128, 512), family.name, family.config(json.loads(sys.argv[3])))
compiled, sent = compile_to_send(candidate, device=GFX950)
parcel.write_bytes(pickle.dumps(sent))
names = [name for files in sent.triton.values() for name in files]
print(json.dumps([compiled.cached, len(sent.triton), sorted(names), len(sent.hip)]))
"""


def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, knobs: dict[str, int]) -> list[Any]:
    """What the one machine and the other say."""
    said = []
    for machine in ("one", "other"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        said.append(run(tmp_path / machine, str(tmp_path / "parcel"), family, knobs, script=SENT))
    return said


def test_a_hip_kernel_that_one_machine_has_built_another_finds_in_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_here("staged_hip")
    (made, *first), (found, *second) = sent(tmp_path, monkeypatch, "staged_hip", {})
    assert (made, found) == (False, True)
    assert first == second and first[-1] > 0


def test_what_one_machine_has_compiled_another_finds_in_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = sent(tmp_path, monkeypatch, "fused_splitk_workspace", {"split_k": 2})
    (made, count, names, hip), (found, *rest) = said
    assert (made, found) == (False, True)
    assert count == 2 and sum(name.endswith(".hsaco") for name in names) == 2  # the GEMM and the reduction
    assert rest == [count, names, hip] and hip == 0
