"""Rules for undefined bits, against trying every value that the undefined bits could have."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from snippets import run

from search.gfx950.simulator.state.shadow import truth_table

BITS = st.tuples(st.booleans(), st.booleans(), st.booleans())


@given(st.integers(0, 255), BITS, BITS)
def test_truth_table_is_undefined_exactly_where_undefined_inputs_change_it(
    code: int, value: tuple[bool, ...], undefined: tuple[bool, ...]
) -> None:
    choices = [(False, True) if unknown else (known,) for known, unknown in zip(value, undefined, strict=True)]
    results = {code >> (4 * x + 2 * y + z) & 1 for x, y, z in product(*choices)}
    words = [[np.full((1, 1), bit * 0x10, np.uint32) for bit in bits] for bits in (value, undefined)]
    assert int(truth_table(code)(*words)[0, 0]) & 0x10 == (0x10 if len(results) == 2 else 0)


def test_a_partly_written_register_may_be_masked_by_a_truth_table() -> None:
    convert = "v_cvt_scalef32_pk_fp4_f32 v0, v1, v1, v2\n"
    registers = {"v1": 0, "v2": 1.0, "v3": 0, "v5": 0xFF, "v8": 0}
    masked = convert + "v_bitop3_b16 v8, v0, v3, v5 bitop3:0xa8\nds_read_b32 v9, v8"  # (v0 | v3) & 0xff
    assert run(masked, registers, undefined="v0").findings == []
    kept = convert + "v_bitop3_b16 v8, v0, v3, v5 bitop3:0xfe\nds_read_b32 v9, v8"  # or of all: bits 8 to 15 remain
    assert run(kept, registers, undefined="v0").kinds() >= {"uninitialised_address"}
