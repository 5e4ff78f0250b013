"""The first hour on an MI355X, rehearsed without one: ``make rehearsal``.

The commands of docs/measuring.md run against a ROCm of the mind: Triton's own HIP driver and launcher load a stand-in
for ``libamdhip64``, launches execute on the simulator, times are what the model predicts of the executed instructions.
What this cannot show is listed at the end: each call of torch that the stand-in answered in torch's place.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from simulated_rocm.face import CALLS
from simulated_rocm.machine import GpuSpec, MachineSpec, environment

ROOT = Path(__file__).resolve().parents[2]
MACHINE = MachineSpec(gpus=(GpuSpec(name="Simulated MI355X"),))
SHAPES = ("32x1024x2048", "64x1024x2048")  # as small as a cold rotation of 512 MB allows within minutes
REFUSED = 2  # exit code of an input error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every step; 0 if each ended as it must."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        results, calls, bundle = Path(folder) / "results", Path(folder) / "calls", Path(folder) / "sweep.zip"
        calls.mkdir()
        variables = environment(MACHINE) | {CALLS: str(calls), "PYTHONWARNINGS": "ignore"}
        sweep = [
            "sweep",
            *options.shapes,
            "--target",
            "local",
            "--trials",
            str(options.trials),
            "--jobs",
            "2",
            "--ranges",
        ]
        steps = (
            (["doctor"], 0),
            (["calibrate", "--brief"], 0),
            ([*sweep, "--results", str(results)], 0),
            (["report", "--bundle", str(bundle), "--results", str(results)], 0),
            (["inspect", "--best", "--results", str(bundle)], 0),
            (["export", "--results", str(results)], REFUSED),
        )
        ended = [_step(command, variables) == code for command, code in steps]
        _say_what_is_unproven(calls)
    print("rehearsal", "passed" if all(ended) else "FAILED")
    return 0 if all(ended) else 1


def _step(command: Sequence[str], variables: dict[str, str]) -> int:
    print(f"$ run_search.py {' '.join(command)}", flush=True)
    start_s = time.monotonic()
    done = subprocess.run([sys.executable, "run_search.py", *command], cwd=ROOT, env=variables, check=False)
    print(f"# exit code {done.returncode}, {time.monotonic() - start_s:.0f} s\n", flush=True)
    return done.returncode


def _say_what_is_unproven(calls: Path) -> None:
    names = sorted({name for file in calls.iterdir() for name in file.read_text().split()})
    print("answered by the stand-in, unproven on a real ROCm:")
    print("  torch.cuda:", " ".join(names))
    print("  torch: tensors of a GPU (allocation, copies, generators, the float64 product)")
    print("  libamdhip64: loading, launches, attributes, versions; real memory, clocks, streams, asynchronous faults")


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
