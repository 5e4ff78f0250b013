"""A sweep packed for a colleague without its machine: results, faults, versions and checks, and nothing of the user.

Host and user names, folders and addresses of databases are taken out of every text: of a path its last part is left.
"""

from __future__ import annotations

import getpass
import io
import json
import os
import re
import socket
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from kernels.disk import write_atomically
from kernels.errors import InputError
from search.results import parquet_bytes
from search.results.columns import COLUMNS, TEXT
from search.results.studies import BUNDLE_RESULTS, BUNDLE_SUFFIX

ENVIRONMENT, FAULTS = "environment.json", "faults.txt"
VARIABLES = ("HIP_", "HSA_", "ROCR_", "CUDA_", "ROCM_", "TRITON_", "PYTORCH_", "MXFP4_", "AMD_", "GPU_")  # that matter
FAULTY = ("crashed", "timed_out", "wrong_result")
_PATH = re.compile(r"(?<![\w:/])~?(?:/[^\s/:;,'\"()\[\]]+){2,}/?")
_ADDRESS = re.compile(r"\w+://\S+")


def write_bundle(frame: pd.DataFrame, path: Path, checks: Sequence[Mapping[str, str]]) -> None:
    """Write the ZIP file ``path``.

    Args:
        checks: What ``doctor`` says, as mappings of texts.

    Raises:
        InputError: Another suffix, no results, or a file that cannot be written.
    """
    if path.suffix != BUNDLE_SUFFIX:
        raise InputError(f"{path}: a bundle is a {BUNDLE_SUFFIX} file; name it so")
    if frame.empty:
        raise InputError("the results hold no trial, of which nothing can be sent; run `sweep` first")
    clean = _clean_frame(frame)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr(ENVIRONMENT, json.dumps(_environment(clean, checks), indent=1) + "\n")
        bundle.writestr(FAULTS, "".join(f"{line}\n" for line in _faults(clean)))
        bundle.writestr(BUNDLE_RESULTS, parquet_bytes(clean))
    write_atomically(path, content.getvalue())


def anonymous(text: str) -> str:
    """``text`` without the names of host and user, without folders and without addresses."""
    text = _PATH.sub(lambda match: f"…/{Path(match[0]).name}", _ADDRESS.sub("…", text))
    for name in (socket.gethostname(), socket.getfqdn(), *_user_names()):
        if len(name) > 1:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", text)
    return text


def _user_names() -> Iterator[str]:
    try:
        yield getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return


def _clean_frame(frame: pd.DataFrame) -> pd.DataFrame:
    clean = frame[list(COLUMNS)].copy()
    for name in [name for name, dtype in COLUMNS.items() if dtype == TEXT and name not in ("study", "started")]:
        clean[name] = clean[name].map(anonymous, na_action="ignore").astype("string")
    return clean


def _environment(frame: pd.DataFrame, checks: Sequence[Mapping[str, str]]) -> Mapping[str, object]:
    versions = ("torch", "triton", "rocm_or_cuda", "driver", "device_name", "protocol", "source_hash")
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)}
    return {
        "checks": [{key: anonymous(value) for key, value in check.items()} for check in checks],
        "made_with": {name: sorted(map(str, frame[name].dropna().unique())) for name in versions},
        "variables": {name: anonymous(value) for name, value in variables.items()},
    }


def _faults(frame: pd.DataFrame) -> Iterator[str]:
    """One line a trial that broke: when, on which GPU, what."""
    rows = frame[frame["outcome"].isin(FAULTY)].sort_values("started")
    for row in rows.itertuples():
        yield f"{row.started} GPU {row.gpu_index} {row.M}x{row.N}x{row.K} {row.family} {row.outcome}: {row.reason}"
