"""A little of the kill half of the soak campaign: jobs killed at random times finish as if nothing had been."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parent.parent / "tools" / "soak"


@pytest.mark.slow
def test_a_small_seed_of_the_kills(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SOAK))
    import kills

    monkeypatch.setattr(kills, "MOST_KILLS", 2)
    for name in ("kills", "case", "nursery"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])  # and gone afterwards
    cases = list(kills.campaign(1, 8.0, tmp_path))
    assert cases
    assert [case for case in cases if case.failure] == []
