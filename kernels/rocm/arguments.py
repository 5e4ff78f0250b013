"""The buffer that holds a kernel's arguments: fields at byte offsets, packed by a struct that is made once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

Field = tuple[str, str, int]  # name, struct code, byte offset
Number = int | float


@dataclass(frozen=True)
class Packer:
    """Writes a kernel-argument buffer; made once, so that a launch only converts numbers.

    Args:
        layout: The whole buffer, zero between the fields.
        constants: Values of the fields that are no arguments.
        arrange: Puts (*arguments, *constants) into the order of the buffer.
    """

    name: str
    layout: struct.Struct
    constants: tuple[Number, ...]
    arrange: Callable[[tuple[Number, ...]], Sequence[Number]]

    def into(self, buffer: object, values: tuple[int, ...]) -> None:
        """Fill ``buffer``, of ``layout.size`` bytes, with one value for each argument, in order.

        Raises:
            ValueError: There are more or fewer values, or one does not fit.
        """
        try:
            self.layout.pack_into(buffer, 0, *self.arrange(values + self.constants))  # type: ignore[arg-type]
        except (struct.error, IndexError, OverflowError) as error:
            raise ValueError(f"{self.name}: arguments {values} do not fit: {error}") from error


def make_packer(
    name: str, arguments: Sequence[str], fields: Sequence[Field], constants: Mapping[str, Number], size: int
) -> Packer:
    """What packs ``arguments``, in order, and ``constants`` into ``fields`` of a buffer of ``size`` bytes.

    Raises:
        ValueError: The fields are not these names, one each, overlap, or end beyond the buffer.
    """
    ordered = sorted(fields, key=itemgetter(2))
    given = (*arguments, *constants)
    if sorted(given) != sorted(label for label, _, _ in ordered):
        raise ValueError(f"{name}: arguments and constants are not the fields of its buffer, one each")
    layout, end = "<", 0
    for _, code, offset in ordered:
        if offset < end:
            raise ValueError(f"{name}: the fields of its buffer overlap at byte {offset}")
        layout += f"{offset - end}x{code}"
        end = offset + struct.calcsize(f"<{code}")
    if end > size:
        raise ValueError(f"{name}: its fields end at byte {end}, its buffer at {size}")
    order = tuple(given.index(label) for label, _, _ in ordered)
    return Packer(name, struct.Struct(f"{layout}{size - end}x"), tuple(constants.values()), _arrangement(order))


def _arrangement(order: tuple[int, ...]) -> Callable[[tuple[Number, ...]], Sequence[Number]]:
    if order == tuple(range(len(order))):
        return tuple
    return itemgetter(*order)  # of two or more: a single field is in order
