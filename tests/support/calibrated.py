"""The probes of a calibration, executed by the simulator once a test process."""

from __future__ import annotations

from functools import cache

from compiled_programs import session_folder

from kernels.device import GFX950
from search.commands.calibrate import SIMULATED_SHARE
from search.device.calibration.probes import probes_of
from search.device.calibration.solve import ExecutedProbe, executed, start_of
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.machine import MI355X

PROBES = probes_of(GFX950, 256 << 20, share=SIMULATED_SHARE)
START = start_of(MI355X)


@cache
def executed_probe(name: str) -> ExecutedProbe:
    """The probe of that name."""
    (probe,) = (one for one in PROBES if one.name == name)
    return executed(probe, MI355X, ArtifactCache(session_folder()))
