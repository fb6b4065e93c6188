"""Real data: the whole chain from the files to an accuracy."""

import os
from pathlib import Path

import pytest

from plufg_fast.data import load, split
from plufg_fast.experiments.train import fit
from plufg_fast.nn.models import build

DATA = Path(os.environ.get("PLUFG_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


@pytest.mark.skipif(not (DATA / "Planetoid" / "Cora").is_dir(), reason=f"no Cora: set PLUFG_DATA ({DATA})")
def test_pl_ufg2_learns_cora(tmp_path, monkeypatch):
    monkeypatch.setenv("PLUFG_CACHE", str(tmp_path))
    data = load("cora", DATA)
    # Options chosen by validation accuracy; the largest class is 37 % of the test nodes.
    model = build("pl-ufg2", data, p=2.0, mu=0.1, theta="channel", dropout=0.75)
    result = fit(model, data, split(data, "released"), epochs=30)
    assert result.test_accuracy >= 0.83
