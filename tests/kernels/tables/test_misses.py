"""The misses file: a list that the sweep takes as it is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.tables.misses import MissRecorder, bucket
from search.space.shapes import load_shapes


@given(st.integers(1, 1 << 20))
def test_a_bucket_is_the_next_power_of_two(M: int) -> None:
    rounded = bucket(GemmShape(M, 64, 64)).M
    assert rounded.bit_count() == 1
    assert rounded // 2 < M <= rounded


def test_the_sweep_takes_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "misses.txt"
    recorder = MissRecorder(path)
    for shape in ("17x2112x7168", "1x64x64", "32x2112x7168", "20x2112x7168"):
        recorder.record(GemmShape.parse(shape), GFX950)
    assert load_shapes(path).shapes == (GemmShape(32, 2112, 7168), GemmShape(1, 64, 64))
    assert "asked as 17x2112x7168 on gfx950-256cu" in path.read_text()


def test_a_second_process_adds_only_what_is_new_even_to_a_torn_file(tmp_path: Path) -> None:
    path = tmp_path / "misses.txt"
    path.write_text("8x64x64\n16x128x64")  # the last line lost its end
    recorder = MissRecorder(path)
    recorder.record(GemmShape(7, 64, 64), GFX950)
    recorder.record(GemmShape(2, 64, 64), GFX950)
    assert load_shapes(path).shapes == (GemmShape(8, 64, 64), GemmShape(16, 128, 64), GemmShape(2, 64, 64))


def test_a_folder_that_does_not_exist_costs_a_log_line_not_the_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = MissRecorder(tmp_path / "nowhere" / "misses.txt")
    with caplog.at_level(logging.WARNING):
        recorder.record(GemmShape(7, 64, 64), GFX950)
    assert "the miss of 7x64x64 is not recorded" in caplog.text


@pytest.mark.parametrize("name", ["misses.yaml", "misses.yml", "misses.CSV"])
def test_a_name_that_promises_another_form_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"name a \.txt file"):
        MissRecorder(Path(name))
