"""What a user may have meant by a name that is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

SUGGESTIONS = 3  # at most


def instead_of(name: str, known: Iterable[str]) -> str:
    """The cure for the unknown ``name``: the nearest known names, whatever their case, then all of them."""
    names = list(dict.fromkeys(known))
    lower: dict[str, str] = {}
    for one in names:
        lower.setdefault(one.lower(), one)
    same = lower.get(name.lower())
    near = [same] if same else [lower[match] for match in get_close_matches(name.lower(), lower, n=SUGGESTIONS)]
    meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{meant}use one of {', '.join(one or repr(one) for one in names)}"
