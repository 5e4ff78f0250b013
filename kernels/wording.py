"""Words for people: what a user may have meant by a name that is unknown, and how many there are of a thing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from unicodedata import category

SUGGESTIONS = 3  # at most
STEERING = ("Cc", "Cf", "Zl", "Zp")  # Unicode categories: control, format (also of direction), line separators
MOST_LISTED = 24  # names; nobody reads more of them in one line


def instead_of(name: str, known: Iterable[str], listed: str = "") -> str:
    """The cure for the unknown ``name``: the nearest known names, whatever their case, then all if they are few.

    Args:
        listed: Where all known names can be read if they are many, for example "`x help` lists them".
    """
    names = list(dict.fromkeys(known))
    lower: dict[str, str] = {}
    for one in names:
        lower.setdefault(one.lower(), one)
    same = lower.get(name.lower())
    near = [same] if same else [lower[one] for one in get_close_matches(name.lower(), lower, n=SUGGESTIONS)]
    meant = f"did you mean {' or '.join(map(repr, near))}?" if near else ""
    if len(names) > MOST_LISTED:
        unlike = f"none of the {len(names)} known names is like it"
        return meant or (f"{unlike}; {listed}" if listed else unlike)
    return f"{meant} use one of {', '.join(one or repr(one) for one in names)}".lstrip()


def printable(text: str) -> str:
    """``text``, in which each character that would steer a terminal is written as its escape; lines stay lines."""
    return "".join(one if one == "\n" or category(one) not in STEERING else ascii(one)[1:-1] for one in text)


def counted(number: int, noun: str) -> str:
    """``number`` and ``noun``, which takes an s unless there is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_of(names: Sequence[str], most: int) -> str:
    """The first ``most`` of ``names`` with commas between, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
