"""kernels.triton.quantize against the torch quantiser, through Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "support" / "fake_quantized.py"


def test_fake_quantised_tiles_hold_the_values_of_the_quantiser_for_every_bf16_pattern() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    values, different = map(int, done.stdout.split())
    assert values >= 1 << 16
    assert different == 0
