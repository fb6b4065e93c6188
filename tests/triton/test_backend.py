"""When the Triton backend serves, what it says when it cannot, and that torch can trace it without a GPU."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import graphs
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from plufg_fast import Graph, ops
from plufg_fast.ops import backend

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = """
import sys
sys.modules["triton"] = None  # import triton now fails, as if it were not there
import torch, plufg_fast as pf
from plufg_fast.ops import backend

g, x = pf.Graph(torch.tensor([[0, 1], [1, 0]])), torch.randn(2, 3)
pf.ops.plap_solve(x, g, 1.5, 1.0)
pf.ops.cheb_analysis(x, g, torch.ones(1, 2))
for run in (lambda: pf.ops.plap_step(x, x, g, 1.5, 1.0, backend="triton"),
            lambda: pf.ops.cheb_synthesis(x[:, None], g, torch.ones(1, 2), backend="triton")):
    try:
        run()
    except backend.BackendError as error:
        print(error)
print(pf.info()["backends"]["triton"])
"""


def test_without_triton_everything_else_works_and_the_error_says_so() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", WITHOUT], env=environment, capture_output=True, text=True, check=True)
    step, synthesis, info = done.stdout.splitlines()
    assert step.startswith("plap_step: backend 'triton' cannot serve: Triton cannot be imported")
    assert synthesis.startswith("cheb_synthesis: backend 'triton' cannot serve: Triton cannot be imported")
    assert info == "{'cpu': [], 'cuda': []}"


pytest.importorskip("triton")


@pytest.mark.parametrize(
    "run",
    [
        lambda g, x: ops.plap_step(x, x, g, 1.5, 1.0, backend="triton"),
        lambda g, x: ops.cheb_analysis(x, g, torch.ones(1, 2), backend="triton"),
    ],
)
def test_tensors_on_the_cpu_are_refused_outside_the_interpreter(run: Callable[[Graph, Tensor], Tensor]) -> None:
    with pytest.raises(backend.BackendError, match=r"Triton kernels take CUDA tensors; .* TRITON_INTERPRET=1"):
        run(graphs.graph("weighted"), torch.randn(11, 2))


def test_auto_takes_triton_for_cuda_only_where_there_is_no_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for family in ("plap", "cheb"):
        monkeypatch.setitem(backend._OBSTACLE, ("cpp", family, "cuda"), None)
        assert backend.choose("test", family, "auto", "cuda") == "cpp"
        assert backend.choose("test", family, "triton", "cuda") == "triton"
        monkeypatch.setitem(backend._OBSTACLE, ("cpp", family, "cuda"), "not built")
        assert backend.choose("test", family, "auto", "cuda") == "triton"


def test_auto_never_takes_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backend._OBSTACLE, ("cpp", "plap", "cpu"), "not built")
    monkeypatch.setitem(backend._OBSTACLE, ("triton", "plap", "cpu"), None)
    assert backend.choose("test", "plap", "auto", "cpu") == "reference"
    assert backend.choose("test", "plap", "triton", "cpu") == "triton"


def test_info_lists_what_triton_serves() -> None:
    assert backend.available()["triton"] == {"cpu": [], "cuda": ["plap", "cheb"]}


def _moved(g: Graph, mode: FakeTensorMode) -> Graph:
    """The graph as if it were on a GPU, so that calls can be traced where there is none."""
    copy = object.__new__(Graph)
    arrays = {key: value for key, value in vars(g).items() if isinstance(value, Tensor)}
    with mode:
        fake = {key: torch.empty(t.shape, dtype=t.dtype, device="cuda") for key, t in arrays.items()}
    copy.__dict__.update(vars(g) | fake)
    copy._transpose = copy
    return copy


def test_traced_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # Forward: torch's engine for gradients needs a driver. The gradients are traced in the interpreter's tests.
    for family in ("plap", "cheb"):
        monkeypatch.setitem(backend._OBSTACLE, ("cpp", family, "cuda"), "not built")
    monkeypatch.setattr("plufg_fast.checks.all_true", lambda *_: None)  # reads values, which there are none of
    mode = FakeTensorMode()
    g, recurrence = _moved(graphs.graph("weighted"), mode), ops.chebyshev_recurrence(3)

    def run(y: Tensor, p: Tensor, c: Tensor) -> Tensor:
        f = ops.plap_step(ops.plap_solve(y, g, p, 1.0, penalty="rtv"), y, g, p, 1.0)
        return ops.poly_synthesis(ops.poly_analysis(f, g, c, recurrence).sin(), g, c, recurrence)

    with mode, torch.no_grad():
        y, p, c = (torch.empty(shape, device="cuda") for shape in ((11, 2, 5), (2,), (3, 4)))
        traced = make_fx(run)(y, p, c)
        out = run(y, p, c)
    assert (out.shape, out.device) == (y.shape, y.device)
    called = {node.target.name() for node in traced.graph.nodes if hasattr(node.target, "name")}
    names = ("plap_steps", "plap_step", "cheb_analysis", "cheb_synthesis")
    assert {f"plufg_triton::{name}" for name in names} <= called
