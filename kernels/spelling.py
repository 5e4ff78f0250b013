"""Words for people: what a user may have meant by a name that is unknown, and how many there are of a thing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

SUGGESTIONS = 3  # at most
MOST_LISTED = 24  # names; nobody reads more of them in one line


def instead_of(name: str, known: Iterable[str]) -> str:
    """The cure for the unknown ``name``: the nearest known names, whatever their case, then all if they are few."""
    names = list(dict.fromkeys(known))
    lower: dict[str, str] = {}
    for one in names:
        lower.setdefault(one.lower(), one)
    same = lower.get(name.lower())
    near = [same] if same else _nearest(name, lower)
    meant = f"did you mean {' or '.join(map(repr, near))}?" if near else ""
    if len(names) > MOST_LISTED:
        closest = ", ".join(map(repr, _nearest(name, lower, cutoff=0.0)))
        return meant or f"the nearest of {len(names)} known names are {closest}"
    return f"{meant} use one of {', '.join(one or repr(one) for one in names)}".lstrip()


def counted(number: int, noun: str) -> str:
    """``number`` and ``noun``, which takes an s unless there is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _nearest(name: str, lower: Mapping[str, str], cutoff: float = 0.6) -> list[str]:
    """Values of ``lower`` whose keys, in lower case, resemble ``name``; the cutoff is that of :mod:`difflib`."""
    return [lower[match] for match in get_close_matches(name.lower(), lower, n=SUGGESTIONS, cutoff=cutoff)]
