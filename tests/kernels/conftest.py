"""Fixtures of the kernels' tests."""

from __future__ import annotations

from pathlib import Path

import fake_amdhip64
import pytest
from fake_amdhip64 import FakeHip


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for the HIP runtime, built once."""
    return fake_amdhip64.build(tmp_path_factory.mktemp("hip"))


@pytest.fixture
def hip(library: Path) -> FakeHip:
    """The stand-in, with nothing recorded."""
    fake = FakeHip(library)
    fake.reset()
    return fake
