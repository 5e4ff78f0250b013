"""kernels.triton.decoded: the portable form, through Triton's interpreter, against the format's own definition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "support" / "decoded_weights.py"
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # OCP MX v1.0, table 5


def test_every_code_under_every_scale_is_its_value_in_bf16() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    decoded = torch.tensor(json.loads(done.stdout), dtype=torch.int16).view(torch.bfloat16)
    exact = np.outer(2.0 ** (np.arange(256.0) - 127), [*MAGNITUDES, *(-value for value in MAGNITUDES)])
    exact[255] = np.nan
    wanted = torch.from_numpy(exact).to(torch.float32).to(torch.bfloat16)  # 6 * 2**127 is Inf in both
    assert torch.equal(decoded.isnan(), wanted.isnan())
    assert torch.equal(decoded[:255], wanted[:255])
