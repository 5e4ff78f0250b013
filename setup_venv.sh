#!/bin/sh
# Usage: setup_venv.sh PYTHON VENV
# Makes VENV and installs the project into it. Where PYTHON already imports torch (a ROCm or CUDA image), VENV sees
# PYTHON's packages, and its torch and Triton stay as they are; else both come from PyPI as constraints.txt says.
set -eu
python=$1
venv=$2

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "error: $python is older than Python 3.10; choose another one with PYTHON=..." >&2
    exit 2
}
if [ -L "${venv%/}" ]; then # --clear would empty the folder that the link leads to
    echo "error: $venv is a symbolic link; remove it, or name another folder with VENV=..." >&2
    exit 2
fi
# VENV is active, and made anew: the Python that it was made from makes it again.
python=$("$python" -c 'import os, sys
own = os.path.realpath(sys.prefix) == os.path.realpath(sys.argv[1])
print(os.path.join(sys.base_prefix, "bin", "python3") if own else sys.argv[2])' "$venv" "$python")
has_torch=$("$python" -c 'import torch' 2>/dev/null && echo yes || echo no)
if [ -e "${KFD:-/dev/kfd}" ] && [ "$has_torch" = no ]; then # PyPI's torch would be gigabytes of CUDA, and see no GPU
    echo "error: this machine has an AMD GPU, and $python has no torch; give one that has it with PYTHON=...," >&2
    echo "or install it first, from PyTorch's index for ROCm" >&2
    exit 2
fi
"$python" -m venv --clear "$venv"
extras=torch,plot,report,test
constraints=constraints.txt
if [ "$has_torch" = yes ]; then
    echo "using the torch of $python"
    # Not --system-site-packages: PYTHON may be in a virtual environment itself, which that option passes over.
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # A bare path alone: the .pth files there, which is how editable installs are found, would not be read. The call
    # alone: where pip builds a package apart, it would not take PYTHON's setuptools, maybe too old, off the path.
    "$python" -c 'import sys
for path in sys.path:
    if path.endswith("-packages"):
        print(f"{path}\nimport site; site.addsitedir({path!r})")' >"$site/parent.pth"
    if "$python" -c 'import triton' 2>/dev/null; then extras=plot,report,test; fi
    # What is there is pinned, so that no dependency can replace it.
    constraints=$venv/constraints.txt
    "$venv/bin/python" - >"$constraints" <<'PY'
import re
from importlib.metadata import distributions
from pathlib import Path

there = {re.sub(r"[-_.]+", "-", d.name).lower(): d.version for d in distributions()}
for line in Path("constraints.txt").read_text().splitlines():
    name = re.match(r"[\w.-]*", line)[0]
    if re.sub(r"[-_.]+", "-", name).lower() not in there:
        print(line)
for name, version in sorted(there.items()):
    if name == "torch" or "triton" in name:
        print(f"{name}=={version}")
PY
fi
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet --constraint "$constraints" --editable ".[$extras]"
# Of several machines, see docs/several-machines.md; there are no builds for every Python.
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet --constraint "$constraints" --editable ".[postgres,ray]" ||
    echo "note: psycopg or Ray could not be installed; tests that need them are skipped" >&2
if [ ! -x "$venv/bin/ruff" ]; then # it came with PYTHON; its launcher looks for the program in VENV
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --constraint constraints.txt \
        --ignore-installed --no-deps ruff
fi
"$venv/bin/python" -c 'import torch, triton' || {
    echo "error: $venv does not import the torch or the triton of $python; see the line above" >&2
    exit 2
}
