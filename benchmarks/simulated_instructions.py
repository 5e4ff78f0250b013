"""Which instructions of gfx950 the simulator executes, and which it refuses, by LLVM's own list.

    python benchmarks/simulated_instructions.py [--names]

The list is the assembler's: every mnemonic in the program llvm-mc and its libraries that it takes for gfx950. A kernel
with an instruction that is not executed is "not checked" and never called right. With --names those are listed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.rocm.toolchain import find_tool
from search.gfx950.simulator.decode.bind import base_name
from search.gfx950.simulator.program import BINDERS, OPS
from search.terminal import TextTable, one_line_errors

LONGEST = 64  # characters of a mnemonic
# LLVM's matcher keeps its mnemonics in one string, each behind a byte with its length.
MNEMONIC = re.compile(rb"(?=([\x03-\x40])((?:v|s|ds|buffer|tbuffer|global|flat|scratch)_[a-z0-9_]{1,63}))")
FOREIGN = re.compile(r"<stdin>:(\d+):\d+: error: (?:instruction not supported on this GPU|invalid instruction)")
# Older spellings that the assembler takes and no compiler writes.
SPELLING = re.compile(r"v_mfma_[fi]\d+_\d+x\d+x\d+(?:f16|bf16|bf16_1k|f32|f64|i8)$")
# Classes of the refused, and who would write them; the first that matches counts.
REFUSED: Mapping[str, tuple[str, str]] = {
    "sparse matrices": (r"v_smfmac_", "builtins: no compiler finds sparsity by itself"),
    "matrices of f64, several products": (r"v_mfma_", "tl.dot of float64; builtins"),
    "6-bit formats": (r".*(?:fp6|bf6|_b6$)", "builtins: Triton has no such type"),
    "stochastic rounding": (r"v_cvt_(?:scalef32_)?sr_|v_prng", "builtins"),
    "FP8 into one half": (r"v_cvt_scalef32_f16_(?:fp8|bf8)", "builtins: Triton converts pairs"),
    "calls, mode, clock, messages": (
        r"s_(?:get|set|swap)pc|s_call|s_[gs]etreg|s_mem(?:real)?time|s_sendmsg|s_trap|s_sethalt|s_endpgm|s_rfe|s_cbranch",
        "functions that are not inlined, traps, timers, rounding modes",
    ),
    "scalar stores, atomics": (r"s_(?:buffer_|scratch_)?(?:store|atomic|load)|s_atc|s_dcache", "no use in LLVM"),
    "formatted buffers": (r"t?buffer_", "graphics"),
    "f64 arithmetic": (r"v_.*f64", "division, roots and rounding of float64"),
    "f16 arithmetic": (r"v_.*f16", "roots, logarithms and rounding of float16"),
    "integer dot products": (r"v_dot", "sums of products of int8 and int16"),
    "rest of LDS": (r"ds_", "global wave synchronisation, append and consume, masked or"),
    "rest of scratch": (r"scratch_", "loads from private memory into LDS"),
    "rest of vectors": (r"v_", "graphics and video"),
    "rest of scalars": (r"s_", "relative moves, performance counters"),
}  # fmt: skip


def linked_files(program: Path) -> Iterator[Path]:
    """``program`` and the LLVM libraries that it loads."""
    yield program
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    yield from (Path(found) for found in re.findall(r"=> (\S*libLLVM\S*)", said))


def mnemonics(data: bytes) -> set[str]:
    """What may be a mnemonic in a program's bytes."""
    return {
        match[2][: match[1][0]].decode()
        for match in MNEMONIC.finditer(data)
        if match[1][0] <= len(match[2]) and match[1][0] <= LONGEST
    }


def accepted(names: Sequence[str], assembler: Path) -> list[str]:
    """Those that gfx950 has; without operands each is an error, which tells."""
    command = [str(assembler), "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950", "-filetype=null", "-"]
    said = subprocess.run(command, input="\n".join(names), capture_output=True, text=True, check=False).stderr
    foreign = {int(line) for line in FOREIGN.findall(said)}
    return [name for number, name in enumerate(names, 1) if number not in foreign and not SPELLING.match(name)]


def is_executed(name: str) -> bool:
    """Whether the simulator has it."""
    return name in BINDERS or base_name(name)[0] in OPS


def class_of(name: str) -> str:
    """Key of :data:`REFUSED`."""
    return next(kind for kind, (pattern, _) in REFUSED.items() if re.match(pattern, name))


def main() -> None:
    """List and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true")
    arguments = parser.parse_args()
    assembler = Path(find_tool("llvm-mc")).resolve()
    found = set[str]().union(*(mnemonics(path.read_bytes()) for path in linked_files(assembler)))
    names = accepted(sorted(found), assembler)
    refused: dict[str, list[str]] = {kind: [] for kind in REFUSED}
    for name in names:
        if not is_executed(name):
            refused[class_of(name)].append(name)
    count = sum(map(len, refused.values()))
    print(f"{len(names)} mnemonics of gfx950, {len(names) - count} executed, {count} refused:")
    lines = [(kind, str(len(those)), REFUSED[kind][1]) for kind, those in refused.items() if those]
    print(TextTable(("refused", "count", "written for"), tuple(lines), frozenset({"count"})).plain())
    if arguments.names:
        for kind, those in refused.items():
            print(f"\n{kind}: {' '.join(those)}")


if __name__ == "__main__":
    with one_line_errors():
        main()
