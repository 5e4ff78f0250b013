"""Time of one kernel launch around the simulated compute unit: who shares what, how fast memory feeds it, rounds.

Compute units get their workgroups in turn, XCD by XCD. The busiest one is simulated with as many workgroups as it gets;
of more than a few rounds only the first are, and the rest take as long. Operands reach it as fast as the slowest of
three allows: its own path, the L2 of its XCD, which is filled once with what the XCD's workgroups share, and memory,
which is read once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from search.gfx950.machine import Machine, Number
from search.gfx950.model.compute_unit import ComputeUnit, Supply, UnitTime
from search.gfx950.model.constants import CONSTANTS, Constants
from search.gfx950.model.issue import Kind
from search.gfx950.model.stream import SCRATCH, WaveStream

XCDS = 8  # dies, each with an L2 of its own
ROUNDS = 2  # that are simulated one after the other
CACHE_BYTES = 256 << 20  # Infinity Cache


@dataclass(frozen=True)
class Sharing:
    """How often the operands of the workgroups that run at once are the same.

    Args:
        device: Distinct pieces of each buffer over workgroups; 1 for a buffer of which each has its own.
        dies: The same, where each XCD reads its own copy.
    """

    device: Mapping[str, float]
    dies: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class LaunchWork:
    """One launch.

    Args:
        workgroup: Waves of a workgroup.
        resident: Workgroups that fit on a compute unit.
        read_bytes: Distinct bytes that the launch reads.
        full_rows: Share of the rows of its tiles that are rows of C; the others multiply zeros, which costs no power.
        handed: Buffers that an earlier launch of the program wrote.
        exchanged: Buffers that the launch both writes and reads: what its workgroups hand to the last one of a tile,
            which is the one that ``workgroup`` shows.
    """

    name: str
    workgroup: tuple[WaveStream, ...]
    workgroups: int
    resident: int
    sharing: Sharing
    read_bytes: float
    full_rows: float = 1.0
    handed: frozenset[str] = frozenset()
    exchanged: frozenset[str] = frozenset()

    def operands(self) -> Mapping[str, float]:
        """Bytes that every workgroup loads, by buffer."""
        return {buffer: size for buffer, size in self.moved(Kind.LOAD).items() if buffer not in self.exchanged}

    def moved(self, kind: Kind) -> Mapping[str, float]:
        """Bytes that one workgroup loads or stores, by buffer."""
        total: dict[str, float] = defaultdict(float)
        for wave in self.workgroup:
            for (moved, buffer), size in wave.moved.items():
                if moved is kind:
                    total[buffer] += size
        return total


@dataclass(frozen=True)
class LaunchTime:
    """Time of one launch without what the harness adds, in microseconds.

    Args:
        dispatch_us: Until the last workgroup of the first round has begun.
        memory_us: Of reading distinct bytes that nothing hides.
        supply: What memory gave it.
    """

    work_us: float
    dispatch_us: float
    memory_us: float
    unit: UnitTime
    supply: Supply


Run = Callable[[LaunchWork, Supply, Constants, int], UnitTime]


def simulated(work: LaunchWork, supply: Supply, constants: Constants, count: int, *, watch: bool = False) -> UnitTime:
    """Time of ``count`` workgroups on one compute unit; ``watch`` keeps spans, for a picture."""
    return ComputeUnit(work.workgroup, supply, constants, watch=watch).run(count, work.resident)


def launch_time(
    work: LaunchWork, machine: Machine, constants: Constants = CONSTANTS, *, warm: bool, run: Run = simulated
) -> LaunchTime:
    """Time of ``work``.

    Args:
        warm: Whether its operands are in the Infinity Cache.
        run: Time of so many workgroups on one compute unit.
    """
    active = min(machine.cu_count, work.workgroups)
    supply = supply_of(work, machine, constants, warm=warm)
    count = -(-work.workgroups // machine.cu_count)
    first = min(count, ROUNDS * work.resident)
    ran = run(work, supply, constants, first)
    clks = _all_rounds(ran, count, work.resident)
    crowded = _crowded(work, count, machine, constants)
    if crowded:
        clks += crowded * (run(work, supply, constants, count + 1).clks - ran.clks)
    feed = count * sum(work.operands().values()) / supply.load_bytes_per_clk
    computing = count / first * max(ran.busy["mfma"], ran.busy["valu"], ran.busy["lds"])
    clks = _unevenly(clks, min(feed, computing), constants)
    dispatch = constants.dispatch_clks * active / XCDS
    exposed = 0.0
    if not warm and not work.handed:
        memory = _bytes_per_clk(machine.hbm_bandwidth_tbs(active), machine)
        exposed = constants.exposed_share * work.read_bytes / memory
    clk_us = 1.0 / machine.clock_mhz
    return LaunchTime((clks + dispatch + exposed) * clk_us, dispatch * clk_us, exposed * clk_us, ran, supply)


def _unevenly(clks: float, hidden: float, constants: Constants) -> float:
    """``clks`` where operands arrive unevenly, by a soft maximum.

    In the simulation they arrive at an even pace. Where loading and computing take about as long, a late operand is
    waited for, and an early one is of no use.

    Args:
        hidden: Clocks of loading or of computing, whichever is less.
    """
    power = constants.overlap
    share = min(1.0, hidden / clks) if clks else 0.0
    return float(clks * (1.0 + share**power) ** (1.0 / power))


def _all_rounds(ran: UnitTime, count: int, resident: int) -> float:
    """Clocks of ``count`` workgroups on the busiest compute unit, of which the first rounds ``ran``."""
    simulated = ROUNDS * resident
    if count <= simulated:
        return ran.clks
    return ran.clks + (ran.clks - ran.first_clks) / (simulated - resident) * (count - simulated)


def _crowded(work: LaunchWork, count: int, machine: Machine, constants: Constants) -> float:
    """Share of a further workgroup that the busiest compute unit gets.

    Workgroups are dealt out, not spread evenly: of a grid that gives most units a further one at once, some get two.
    Those that wait for room go wherever there is some.
    """
    if count < 2 or count >= work.resident:
        return 0.0
    filled = work.workgroups / (count * machine.cu_count)
    return constants.crowding * min(1.0, max(0.0, 4.0 * filled - 3.0))


def supply_of(work: LaunchWork, machine: Machine, constants: Constants, *, warm: bool) -> Supply:
    """What memory gives to each compute unit while the first round runs."""
    active = min(machine.cu_count, work.workgroups)
    loaded = work.operands()
    at_once = min(work.workgroups, machine.cu_count * work.resident)
    total = sum(loaded.values()) * at_once
    filled = sum(size * work.sharing.dies.get(buffer, 1.0) for buffer, size in loaded.items()) * at_once
    distinct = sum(size * work.sharing.device.get(buffer, 1.0) for buffer, size in loaded.items()) * at_once
    rounds = work.workgroups / at_once
    if rounds > 1 and work.read_bytes < CACHE_BYTES:
        distinct = min(distinct, work.read_bytes / rounds)
    memory_tbs = constants.cache_tbs if warm or work.handed else float(machine.hbm_bandwidth_tbs(active))
    limits = [constants.unit_bytes_per_clk, constants.l2_bytes_per_clk * XCDS / active]
    if total:
        limits.append(_bytes_per_clk(constants.cache_tbs * constants.fill_gain, machine) / active * total / filled)
        limits.append(_bytes_per_clk(memory_tbs, machine) / active * total / distinct)
    cold = constants.warm_latency_clks if warm else constants.cold_latency_clks
    from_others = work.handed | work.exchanged
    latency = dict.fromkeys(from_others, constants.handed_latency_clks) | {SCRATCH: constants.scratch_latency_clks}
    leaving = _bytes_per_clk(constants.write_tbs, machine) / active
    stretch = 1.0 + constants.mfma_throttle * active / machine.cu_count * work.full_rows
    return Supply(latency, cold, min(limits), leaving, stretch)


def _bytes_per_clk(tbs: Number, machine: Machine) -> float:
    return float(tbs) * 1e6 / machine.clock_mhz
