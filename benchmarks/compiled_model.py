"""Why a compiled model's result is not the eager one's, bit for bit: two MXFP4 layers with SwiGLU between them.

Usage: python benchmarks/compiled_model.py [--device cuda] [--rows 1 16 64] [--hidden 7168] [--intermediate 2048]
       [--output FILE]

Between two layers Inductor fuses what is elementwise and rounds to bfloat16 once, at the end; eager torch rounds after
each operation. The second layer quantises what it gets: an element that moved by one bfloat16 step may cross a
boundary of MXFP4, and its code then moves by a whole step of E2M1. For each way to run the model, the table counts
how far that goes, and whether the layers themselves have a part in it:

hidden         elements of the second layer's input that differ from eager's
codes, scales  elements of its quantised form, and scales, that do
out            elements of the result that do; and the distance of the two results
own gemm       elements in which the result is not bit for bit the layer's product of the same way's input
reference      elements of the result further than one bfloat16 step from the float64 reference of that input
float64        distance of the result from the model whose elementwise part and second input are not rounded at all
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.dispatch import mxfp4_gemm
from kernels.linear import MXFP4Linear
from kernels.mxfp4.numerics import quantize, unpack_codes
from kernels.mxfp4.reference import compare, mxfp4_gemm_reference
from search.terminal import one_line_errors

Run = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


class Mlp(nn.Module):
    """DeepSeek-R1's shared expert at its own sizes: gate and up in one layer, SwiGLU, down."""

    def __init__(self, hidden: int, intermediate: int, bias: bool, device: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = MXFP4Linear.from_linear(nn.Linear(hidden, 2 * intermediate, bias=bias, device=device))
        self.down = MXFP4Linear.from_linear(nn.Linear(intermediate, hidden, bias=False, device=device))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the second layer's input and its result."""
        gate, value = self.up(x).chunk(2, dim=-1)
        hidden = nn.functional.silu(gate) * value
        return hidden, self.down(hidden)

    def rounded_once(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The model with the elementwise part, the bias too, in float32 and one rounding: what Inductor should do."""
        hidden = self.elementwise(x, torch.float32).to(torch.bfloat16)
        return hidden, self.down(hidden)

    def elementwise(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The second layer's input, computed in ``dtype`` from the first product in bfloat16."""
        product, bias = mxfp4_gemm(x, self.up.weight).to(dtype), self.up.bias
        gate, value = (product if bias is None else product + bias.to(dtype)).chunk(2, dim=-1)
        result: torch.Tensor = nn.functional.silu(gate) * value
        return result


@dataclass(frozen=True)
class Row:
    """One way to run one model; see the module for the columns."""

    model: str
    M: int
    way: str
    hidden: int
    codes: int
    scales: int
    out: int
    distance: float
    own_gemm: int
    reference: int
    float64: float


def _distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


def _differ(first: torch.Tensor, second: torch.Tensor) -> int:
    return int((first != second).sum())


def rows_of(mlp: Mlp, x: torch.Tensor, name: str, ways: dict[str, Run]) -> list[Row]:
    """One row a way."""
    eager_hidden, eager = mlp(x)
    eager_quantized = quantize(eager_hidden)
    exact = mlp.elementwise(x, torch.float64) @ mlp.down.weight.dequantize(torch.float64).T
    rows = []
    for way, run in ways.items():
        hidden, out = run(x)
        quantized = quantize(hidden)
        rows.append(
            Row(
                name,
                x.shape[0],
                way,
                _differ(hidden, eager_hidden),
                _differ(unpack_codes(quantized.codes), unpack_codes(eager_quantized.codes)),
                _differ(quantized.scales, eager_quantized.scales),
                _differ(out, eager),
                _distance(out, eager),
                _differ(out, mlp.down(hidden)),
                compare(out, mxfp4_gemm_reference(hidden, mlp.down.weight)).mismatches,
                _distance(out, exact),
            )
        )
    return rows


def _ways(mlp: Mlp) -> dict[str, Run]:
    def inductor(**options: str | int | bool | Callable[..., object]) -> Run:
        torch.compiler.reset()
        compiled: Run = torch.compile(mlp, fullgraph=True, dynamic=False, options=options)
        return compiled

    return {
        "eager": mlp,
        "eager, rounded once": mlp.rounded_once,
        "compiled": inductor(),
        "compiled, emulate_precision_casts": inductor(emulate_precision_casts=True),
    }


def table(rows: list[Row]) -> str:
    """Markdown."""
    head = list(asdict(rows[0]))
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = (f"{value:.2e}" if isinstance(value, float) else str(value) for value in asdict(row).values())
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


@torch.no_grad()
def main() -> None:
    """Run every way and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--intermediate", type=int, default=2048)
    parser.add_argument("--output", type=Path, help="JSON with the rows")
    options = parser.parse_args()
    rows: list[Row] = []
    for bias in (False, True):
        mlp = Mlp(options.hidden, options.intermediate, bias, options.device)
        for M in options.rows:
            x = torch.randn(M, options.hidden, device=options.device).to(torch.bfloat16)
            rows += rows_of(mlp, x, "with bias" if bias else "no bias", _ways(mlp))
    where = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    elements = [f"{M * options.intermediate} hidden, {M * options.hidden} out at M = {M}" for M in options.rows]
    print(f"{where}, torch {torch.__version__}; elements: {'; '.join(elements)}\n\n{table(rows)}")
    if options.output is not None:
        options.output.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    with one_line_errors():
        main()
