"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("busy", deadline=None)  # a loaded machine is no failure
settings.load_profile("busy")
