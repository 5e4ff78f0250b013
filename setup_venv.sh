#!/bin/sh
# Usage: setup_venv.sh PYTHON VENV
# Makes VENV and installs the project into it. Where PYTHON already imports torch, VENV sees PYTHON's packages and
# torch and Triton stay as they are; else both come from PyPI in the versions of constraints.txt.
set -eu
python=$1
venv=$2

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "error: $python is older than Python 3.10; choose another one with PYTHON=..." >&2
    exit 2
}
if "$python" -c 'import torch' 2>/dev/null; then
    echo "$python has torch: its torch and Triton are used"
    "$python" -m venv --clear --system-site-packages "$venv"
    # Pin what is there, so that no dependency can replace it.
    "$venv/bin/python" - <<'PY' >"$venv/constraints.txt"
from importlib.metadata import distributions
from pathlib import Path

kept = {d.name.lower(): d.version for d in distributions() if d.name}
own = ("torch", "triton", "numpy")
for line in Path("constraints.txt").read_text().splitlines():
    if line.split("=")[0].split(">")[0].strip().lower() not in kept:
        print(line)
for name, version in sorted(kept.items()):
    if name.startswith(own) or "triton" in name:
        print(f"{name}=={version}")
PY
    extras=plot,test
    constraints=$venv/constraints.txt
else
    "$python" -m venv --clear "$venv"
    extras=torch,plot,test
    constraints=constraints.txt
fi
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet --constraint "$constraints" --editable ".[$extras]"
