"""The one type of all values: numpy arrays of whatever dtype an instruction has."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
