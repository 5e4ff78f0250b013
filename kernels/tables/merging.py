"""The union of two tables of one device, and why each row is in it. Nothing is read or written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, get_args

from kernels.tables.rows import EVIDENCE, RowKey, TableRow, TunedTable, kernels_of, minor_version

Action = Literal["added", "replaced", "kept", "dropped"]
ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True)
class Change:
    """What became of one key.

    Args:
        action: ``added``, ``replaced``: ``row`` is new; ``kept``: it was there; ``dropped``: it is left out.
        row: The row that the action is about.
    """

    action: Action
    row: TableRow
    reason: str
    previous: TableRow | None = None


@dataclass(frozen=True)
class MergeReport:
    """The merged table with one change a key, in the order of the table."""

    table: TunedTable
    changes: tuple[Change, ...]

    def count(self, action: Action) -> int:
        """Number of changes of one kind."""
        return sum(change.action == action for change in self.changes)


def merge(
    old: TunedTable, new: TunedTable, *, min_gain: float, untried: Collection[RowKey] = frozenset()
) -> MergeReport:
    """``old`` with those rows of ``new`` that are better evidenced, or faster beyond doubt.

    Args:
        old: Incumbents.
        new: Challengers.
        min_gain: Part of the incumbent's time (0.01 = 1 %) that a challenger of equal evidence must save and
            exceed; it must also save more than the wider of the two spreads.
        untried: Predicted incumbents whose configurations were not judged since the kernels changed: a slower
            prediction does not replace them.

    Raises:
        ValueError: The tables are of different devices, or ``min_gain`` is outside [0, 1).
    """
    if old.device != new.device:
        raise ValueError(f"cannot merge rows of {new.device} into a table of {old.device}")
    if not 0 <= min_gain < 1:
        raise ValueError(f"min_gain = {min_gain} is outside [0, 1)")
    rivals: dict[RowKey, TableRow] = {}  # the final deterministic row of each shape
    changes: list[Change] = []
    incumbents, challengers = ({row.key: row for row in table.rows} for table in (old, new))
    keys = sorted({*incumbents, *challengers})
    for key in sorted(keys, key=lambda key: not key[-1]):  # the deterministic rows first
        rival = rivals.get((*key[:-1], True))
        change = _settle(incumbents.get(key), challengers.get(key), rival, min_gain, key in untried)
        changes.append(change)
        if change.row.deterministic:
            rivals[key] = change.row
    changes.sort(key=lambda change: change.row.key)
    table = TunedTable(old.device, tuple(change.row for change in changes if change.action != "dropped"))
    return MergeReport(table, tuple(changes))


def _settle(
    incumbent: TableRow | None, challenger: TableRow | None, rival: TableRow | None, min_gain: float, untried: bool
) -> Change:
    """Decide one key. ``rival`` is the deterministic row that makes a slower non-deterministic one useless."""
    if incumbent is not None and _dead(incumbent, rival):
        change = Change("dropped", incumbent, "a deterministic row is as good")
    elif incumbent is not None:
        change = Change("kept", incumbent, "no new result")
    if challenger is None:
        return change
    if incumbent is not None and incumbent.graph:  # how a row is served is the user's to say, not the sweep's
        challenger = replace(challenger, graph=True)
    if incumbent is None:
        change = Change("added", challenger, "no row before")
    elif change.action == "dropped":
        change = Change("replaced", challenger, "a deterministic row beats the old one", incumbent)
    else:
        change = _decide(incumbent, challenger, min_gain, untried)
    if _dead(change.row, rival):
        return Change("dropped", change.row, "a deterministic row is as good", change.previous)
    return change


def _dead(row: TableRow, rival: TableRow | None) -> bool:
    return not row.deterministic and rival is not None and rival.rank <= row.rank


def _decide(incumbent: TableRow, challenger: TableRow, min_gain: float, untried: bool) -> Change:
    if incumbent == challenger:
        return Change("kept", incumbent, "unchanged")
    if incumbent.evidence != challenger.evidence:
        return _better_evidenced(incumbent, challenger)
    if _differences(incumbent, challenger):
        return _later(incumbent, challenger, untried)
    return _faster(incumbent, challenger, min_gain)


def _better_evidenced(incumbent: TableRow, challenger: TableRow) -> Change:
    if EVIDENCE.index(challenger.evidence) < EVIDENCE.index(incumbent.evidence):
        return Change("replaced", challenger, "measured replaces predicted", incumbent)
    return Change("kept", incumbent, "a prediction never replaces a measurement")


def _differences(a: TableRow, b: TableRow) -> list[str]:
    """What differs between the origins of two rows, so that their times tell nothing of one another."""
    origins = {
        "kernels": (kernels_of(a), kernels_of(b)),
        "compiler": (minor_version(a.made.triton), minor_version(b.made.triton)),
        "protocol": (a.made.protocol, b.made.protocol),
    }
    return [name for name, (first, second) in origins.items() if first != second]


def _later(incumbent: TableRow, challenger: TableRow, untried: bool) -> Change:
    """Decide between rows of one evidence whose times are not of the same kernels, or not by the same protocol."""
    differ = _differences(incumbent, challenger)[0]
    if challenger.made.date < incumbent.made.date:
        return Change("kept", incumbent, f"the new row is of {challenger.made.date}, before the {differ} changed")
    reason = f"the {differ} changed since {incumbent.made.date}"
    if incumbent.made.protocol != challenger.made.protocol:
        return Change("replaced", challenger, reason, incumbent)
    name = "time_us" if incumbent.evidence == "measured" else "predicted_us"
    reason += f", {name} {incumbent.cost_us:g} -> {challenger.cost_us:g}"
    if untried and incumbent.evidence == "predicted" and challenger.cost_us > incumbent.cost_us:
        cure = "its configuration was not tried since; sweep again with more trials"
        return Change("kept", incumbent, f"{reason} is slower, but {cure}")
    return Change("replaced", challenger, reason, incumbent)


def _faster(incumbent: TableRow, challenger: TableRow, min_gain: float) -> Change:
    saved_us = incumbent.cost_us - challenger.cost_us
    noise_us = max(incumbent.spread_us or 0.0, challenger.spread_us or 0.0)
    percent = 100 * saved_us / incumbent.cost_us
    if saved_us <= 0:
        return Change("kept", incumbent, f"{-percent:.2f} % slower" if saved_us else "equally fast")
    if saved_us <= noise_us:
        return Change("kept", incumbent, f"{percent:.2f} % faster is within the noise of {noise_us:g} us")
    if saved_us <= min_gain * incumbent.cost_us:
        return Change("kept", incumbent, f"{percent:.2f} % faster, {100 * min_gain:g} % are needed")
    return Change("replaced", challenger, f"{percent:.2f} % faster", incumbent)
