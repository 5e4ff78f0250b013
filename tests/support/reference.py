"""Write the options of every command into docs/reference.md, from the command line's own help: ``make reference``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from search.cli import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


def option_lines(command: Any) -> Iterator[str]:
    """Rows of the command's table."""
    yield from (f"{command.help}\n", "| option | meaning |", "|---|---|")
    for one in command.params:
        text = one.help.replace("|", "/")
        if one.param_type_name == "argument":
            yield f"| `{one.metavar or one.name}` | {text} |"
            continue
        value = "" if one.is_flag else f" {one.metavar}"
        default = getattr(one.default, "value", one.default)
        shown = "" if one.is_flag or one.required or default is None else f" (default: `{default}`)"
        yield f"| `{one.opts[0]}{value}` | {text}{shown} |"


def leaves(commands: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its name; those of a group with the group's name in front."""
    for name, one in commands.items():
        inner = getattr(one, "commands", None)
        if inner is None:
            yield f"{group}{name}", one
        else:
            yield from leaves(inner, f"{name} ")


def options_text() -> str:
    """A section a command."""
    commands = leaves(get_command(app).commands)  # type: ignore[attr-defined]
    return "\n".join(f"### `{name}`\n\n" + "\n".join(option_lines(one)) + "\n" for name, one in commands)


def page_of_today(page: str) -> str:
    """``page`` with the options as the commands have them now."""
    return re.sub(r"^### `sweep`\n.*?(?=^## )", lambda _: options_text() + "\n", page, flags=re.M | re.S)


if __name__ == "__main__":
    PAGE.write_text(page_of_today(PAGE.read_text()))
