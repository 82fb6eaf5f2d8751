"""Shared fixtures: where `../shared` is, and an English, colourless, offline environment for every test."""

import os
from pathlib import Path

import pytest

from stoker.core.i18n import set_language

os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # before any torch: see stoker/engine/__init__.py
_SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def shared() -> Path:
    """The folder of building data beside the checkout; the test skips where it is absent."""
    if not _SHARED.is_dir():
        pytest.skip("../shared is not here")
    return _SHARED


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("STOKER_LANG", raising=False)
    set_language("en")
