"""search.results.columns: the schema that every results file relies on."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kernels.families import FAMILIES
from search.results.columns import COLUMNS, CONFIG, typed_frame

# design: the columns that users rely on. A name, once here, is never removed or given another dtype.
PUBLISHED = {
    "string": "study target arch family outcome reason evidence protocol triton torch rocm_or_cuda device_name "
    "source_hash started cache_modifier quantizer",
    "Int64": "cu_count M N K samples vgprs sgprs lds_bytes spills occupancy mfma gpu_index BLOCK_M BLOCK_N BLOCK_K "
    "GROUP_M num_warps num_stages waves_per_eu matrix_instr_nonkdim num_xcds split_k REDUCE_BLOCK_M REDUCE_BLOCK_N "
    "QUANT_BLOCK_M QUANT_BLOCK_K",
    "Float64": "time_us time_lo_us time_hi_us predicted_us tflops bandwidth_gbs roofline_fraction compile_s "
    "max_rel_error duration_s",
    "boolean": "deterministic",
}


@pytest.mark.parametrize(("dtype", "names"), PUBLISHED.items())
def test_published_columns_keep_their_dtype(dtype: str, names: str) -> None:
    assert {name: COLUMNS.get(name) for name in names.split()} == dict.fromkeys(names.split(), dtype)


def test_every_knob_of_every_family_is_a_column() -> None:
    knobs = {field.name for family in FAMILIES.values() for field in fields(family.config_type)}
    assert set(CONFIG) == knobs


def test_wrong_value_names_its_column() -> None:
    with pytest.raises(ValueError, match="column M is not Int64"):
        typed_frame({"M": ["many"]})
