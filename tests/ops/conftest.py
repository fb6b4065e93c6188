import pytest

from plufg_fast.ops import backend


@pytest.fixture(params=["reference", "cpp"])
def plap_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which backend serves ``backend="auto"`` for the p-Laplacian, where it can: every oracle speaks to both."""
    if request.param == "reference":
        monkeypatch.setitem(backend._OBSTACLE, ("cpp", "plap", "cpu"), "hidden by a test")
    elif backend._OBSTACLE["cpp", "plap", "cpu"] is not None:
        pytest.skip("the extension is not built")
    return str(request.param)
