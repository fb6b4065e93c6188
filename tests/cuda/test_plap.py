"""The CUDA kernels of the p-step on a GPU: the cases of the CPU kernels, and what only a device can show."""

import graphs
import pytest
import torch
from plap_cases import KINDS, PENALTIES, TOLERANCE, assert_parity, assert_parity_at_ties, error, graph, inputs, results
from torch import Tensor

from plufg_fast import Graph, ops

pytestmark = pytest.mark.cuda


def hub(nodes: int = 3000) -> Graph:
    """A row of 1500 edges, which takes several pieces, and short ones."""
    ends = torch.randint(0, nodes, (2, 4 * nodes), generator=torch.Generator().manual_seed(0))
    ends[0, :1500], ends[1, :1500] = 7, torch.arange(1500)
    return Graph(torch.cat((ends, ends.flip(0)), 1), nodes)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [1, 3, 17, 32, 33, 64, 100, 130, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_parity_of_values_and_gradients(device, kind, width, index, dtype, penalty, monkeypatch) -> None:
    assert_parity(graph(kind, index, monkeypatch), width, dtype, penalty, device)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parity_at_nodes_whose_edges_are_all_ties(device, dtype, penalty) -> None:
    assert_parity_at_ties("cpp", dtype, penalty, device)


@pytest.mark.parametrize("penalty", ["power", "rtv"])
@pytest.mark.parametrize("width", [8, 130, 300])
def test_parity_of_a_long_row(device, width: int, penalty: str) -> None:
    assert_parity(hub(), width, torch.float64, penalty, device)


@pytest.mark.parametrize("storage", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [1, 17, 32])
def test_parity_of_half_storage_with_float32(device, width: int, storage: torch.dtype, monkeypatch) -> None:
    g = graph("self_loops", torch.int32, monkeypatch).to(device)
    f, y, p, mu = (t.detach().to(device).requires_grad_() for t in inputs(3, width, torch.float32))
    half = [t.detach().to(storage).requires_grad_() for t in (f, y)]
    full = [t.detach().float().requires_grad_() for t in half]
    grad = torch.randn(f.shape, device=device).to(storage)
    a = results("cpp", (*full, p, mu), g, grad.float(), penalty="rtv")
    b = results("cpp", (*half, p, mu), g, grad, penalty="rtv")
    assert torch.equal(a[0].to(storage), b[0])  # computed in float32, rounded once
    assert [t.dtype for t in b] == [storage] * 3 + [torch.float32] * 2
    for expected, actual in zip(a, b, strict=True):
        # The gradients see the rounded result of the step: half a unit in the last of eight bits.
        assert error(expected, actual) < 1e-2


@pytest.mark.parametrize("penalty", ["power", "tikhonov", "rtv"])
@pytest.mark.parametrize("kind", ["weighted", "directed_weighted_loops"])
def test_gradients_against_finite_differences(device, kind: str, penalty: str) -> None:
    g = graphs.graph(kind, num_nodes=7).to(device)
    args = [torch.randn(7, 2, 3, dtype=torch.float64) for _ in range(2)]
    args += [torch.tensor(v, dtype=torch.float64) for v in ([1.4, 2.5], [0.5, 1.0])]
    leaves = [t.to(device).requires_grad_() for t in args]
    assert torch.autograd.gradcheck(lambda f, y, p, mu: ops.plap_step(f, y, g, p, mu, penalty, backend="cpp"), leaves)


@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
def test_early_stop_is_that_of_the_reference(device, tol: float) -> None:
    g, y = graphs.graph("isolated"), torch.randn(11, 2, 5, dtype=torch.float64)
    options = {"warmup": 200, "steps": 1, "tol": tol, "return_info": True}
    f, expected = ops.plap_solve(y, g, 1.5, 0.3, backend="reference", **options)
    h, actual = ops.plap_solve(y.to(device), g.to(device), 1.5, 0.3, backend="cpp", **options)
    assert actual.steps.device.type == device
    assert actual.steps.cpu() == expected.steps
    assert error(f, h.cpu()) < TOLERANCE[torch.float64]["value"]


@pytest.mark.parametrize("width", [9, 130, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_bits_for_every_run(device, dtype: torch.dtype, width: int) -> None:
    g = hub().to(device)
    y = torch.randn(g.num_nodes, 2, width, dtype=dtype, device=device, requires_grad=True)
    p = torch.tensor([1.5, 1.37], dtype=dtype, device=device, requires_grad=True)
    runs = []
    for _ in range(5):
        out = ops.plap_solve(y, g, p, 1.0, warmup=2, steps=2, backend="cpp")
        runs.append((out, *torch.autograd.grad(out.square().sum(), (y, p))))
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


def solved(y: Tensor, g: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """A solve that ends early, one more step and the gradient through it."""
    f, info = ops.plap_solve(y, g, 1.5, 0.3, warmup=40, steps=1, tol=1e-3, backend="cpp", return_info=True)
    return f.detach(), info.steps, torch.autograd.grad(f.square().sum(), y)[0]


def test_runs_on_the_current_stream(device) -> None:
    g, y = hub().to(device), torch.randn(3000, 1, 64, device=device)
    expected = solved(y.clone().requires_grad_(), g)
    stream = torch.cuda.Stream()
    late = torch.zeros_like(y, requires_grad=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), torch.no_grad():
        torch.cuda._sleep(100_000_000)  # a kernel on another stream would see the zeros
        late.copy_(y)
        with torch.enable_grad():
            actual = solved(late, g)
    stream.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(expected, actual, strict=True))


def test_nothing_waits_for_the_device(device) -> None:
    g, y = hub().to(device), torch.randn(3000, 1, 64, device=device, requires_grad=True)
    solved(y, g)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")  # whatever waits raises
    try:
        solved(y, g)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_captured_graph_replays_with_other_values(device) -> None:
    g, y = hub().to(device), torch.randn(3000, 1, 64, device=device, requires_grad=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        solved(y, g)
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        results_of_graph = solved(y, g)
    for scale in (1.0, 3.0):
        values = scale * torch.randn_like(y)
        with torch.no_grad():
            y.copy_(values)
        captured.replay()
        expected = solved(values.detach().requires_grad_(), g)
        assert all(torch.equal(a, b) for a, b in zip(expected, results_of_graph, strict=True))


def test_second_device_is_served_while_the_first_is_current() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device only")
    g, y = hub(), torch.randn(3000, 1, 64)
    with torch.cuda.device(0):
        here, there = (solved(y.to(d).requires_grad_(), g.to(d)) for d in ("cuda:0", "cuda:1"))
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(here, there, strict=True))


def test_signal_of_more_numbers_than_32_bits_count(device) -> None:
    nodes, channels = 5_000_000, 512  # 2.56e9 numbers
    if torch.cuda.mem_get_info()[0] < 6 * 2 * nodes * channels:
        pytest.skip("not enough memory on the device")
    ends = torch.arange(nodes - 1)
    g = Graph(torch.stack((torch.cat((ends, ends + 1)), torch.cat((ends + 1, ends)))), nodes).to(device)
    y = torch.zeros(nodes, 1, channels, dtype=torch.bfloat16, device=device)
    y[-1] = 1
    out = ops.plap_step(y, y, g, 1.5, 1.0, backend="cpp")
    tail = slice(nodes - 3, nodes)
    small = Graph(torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]]), 5)
    signal = y[-5:].cpu()
    assert torch.equal(out[tail].cpu(), ops.plap_step(signal, signal, small, 1.5, 1.0, backend="cpp")[2:])
