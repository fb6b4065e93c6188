"""The CUDA kernels of the p-step, emulated: the cases of the CPU kernels at small sizes, and the order of threads."""

from types import ModuleType

import graphs
import pytest
import torch
from plap_cases import KINDS, PENALTIES, assert_parity, assert_parity_at_ties, error, graph, inputs, results

from plufg_fast import Graph, ops

NODES = 26  # one row of 24 edges, in two or three pieces; most others of 2 to 4


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [1, 3, 17, 32, 33, 64, 100, 130, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_parity_of_values_and_gradients(emulated, kind, width, index, dtype, penalty, monkeypatch) -> None:
    assert_parity(graph(kind, index, monkeypatch, NODES), width, dtype, penalty)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parity_at_nodes_whose_edges_are_all_ties(emulated, dtype, penalty) -> None:
    assert_parity_at_ties("cpp", dtype, penalty)


@pytest.mark.parametrize("penalty", ["power", "nldiff"])
@pytest.mark.parametrize("width", [5, 300])
@pytest.mark.parametrize("chunk", [1, 7, 24])
def test_parity_wherever_a_long_row_is_cut(emulated, chunk: int, width: int, penalty: str, monkeypatch) -> None:
    # Into single edges; where a chunk holds the end of one long row and the start of the next; not at all.
    g = graph("directed_weighted_loops", torch.int32, monkeypatch, NODES)
    assert g.rowptr.diff().max() == 24
    emulated.set_chunk_edges(chunk)
    assert_parity(g, width, torch.float64, penalty)


@pytest.mark.parametrize("penalty", ["power", "rtv"])
@pytest.mark.parametrize("width", [1, 17, 32, 258])
@pytest.mark.parametrize("storage", [torch.bfloat16, torch.float16])
def test_parity_of_half_storage_with_float32(kernels, storage: torch.dtype, width: int, penalty: str, monkeypatch):
    g = graph("self_loops", torch.int32, monkeypatch, NODES)
    weight, dinv, _ = g.values(torch.float32)
    arrays = (g.rowptr, g.col, weight, g.rowptr, g.col, weight, dinv)
    options = (0.0, PENALTIES.index(penalty), 0.5)
    f, y, p, mu = (x.detach() for x in inputs(3, width, torch.float32, NODES))
    f, y, grad = (x.to(storage) for x in (f, y, torch.randn(NODES, 3, width)))
    simt = torch.ops.plufg_simt
    out, a, norm = simt.plap_step(f, y, *arrays, p, mu, *options)
    full = simt.plap_step(f.float(), y.float(), *arrays, p, mu, *options)
    # Computed in float32, rounded once.
    assert torch.equal(out, full[0].to(storage))
    assert torch.equal(a, full[1])
    assert torch.equal(norm, full[2])
    df, dp = simt.plap_step_backward(grad, f, out, a, norm, *arrays, p, *options, True)
    full = simt.plap_step_backward(grad.float(), f.float(), out.float(), a, norm, *arrays, p, *options, True)
    assert torch.equal(df, full[0].to(storage))
    assert torch.equal(dp, full[1])
    several, full = (simt.plap_steps(x, *arrays, p, mu, *options, 3, None)[0] for x in (y, y.float()))
    assert torch.equal(several, full.to(storage))


def test_float16_is_refused_on_the_cpu_itself() -> None:
    g = graphs.graph("weighted")
    weight, dinv, _ = g.values(torch.float32)
    arrays, f, p = (g.rowptr, g.col, weight), torch.ones(11, 1, 3).half(), torch.ones(1)
    with pytest.raises(RuntimeError, match="f must be float32, bfloat16 or float64, got Half"):
        torch.ops.plufg.plap_step(f, f, *arrays, *arrays, dinv, p, p, 0.0, 0, 0.0)


@pytest.mark.parametrize("penalty", ["power", "rtv"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_parity_without_channels(emulated, dtype: torch.dtype, penalty: str, monkeypatch) -> None:
    g = graph("self_loops", torch.int32, monkeypatch, NODES)
    f, y, p, mu = inputs(2, 0, torch.promote_types(dtype, torch.float32), NODES)
    args = (f.detach().to(dtype).requires_grad_(), y.detach().to(dtype).requires_grad_(), p, mu)
    actual = results("cpp", args, g, torch.zeros(NODES, 2, 0, dtype=dtype), penalty=penalty)
    assert [t.numel() for t in actual] == [0, 0, 0, 2, 2]
    assert all((t == 0).all() for t in actual)


@pytest.mark.parametrize("kind", ["weighted", "directed"])
@pytest.mark.parametrize("width", [8, 264])
def test_parity_of_signals_that_are_not_aligned_to_a_vector(emulated, width: int, kind: str) -> None:
    g, both = graphs.graph(kind), []
    for shift in (0, 1):
        rng = torch.Generator().manual_seed(0)
        f, y, grad = (
            torch.empty(11 * 2 * width + shift)[shift:].normal_(generator=rng).view(11, 2, width) for _ in range(3)
        )
        p = torch.tensor([1.5, 2.5], requires_grad=True)
        both.append(
            results("cpp", (f.requires_grad_(), y.requires_grad_(), p, torch.ones(2, requires_grad=True)), g, grad)
        )
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("penalty", ["power", "nldiff"])
@pytest.mark.parametrize("width", [19, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parity_of_many_steps_in_one_call_with_single_steps(emulated, dtype, width, penalty, monkeypatch) -> None:
    g = graph("self_loops", torch.int32, monkeypatch, NODES)
    y, p = torch.randn(NODES, 2, width, dtype=dtype), torch.tensor([1.5, 1.2], dtype=dtype)
    f = y
    for _ in range(5):
        f = ops.plap_step(f, y, g, p, 1.0, penalty=penalty, backend="cpp")
    assert torch.equal(ops.plap_solve(y, g, p, 1.0, penalty=penalty, warmup=4, steps=1, backend="cpp"), f)


def same_early_stop(y: torch.Tensor, g: Graph, tol: float) -> int:
    """The steps that were taken: as many as the reference took, and to the same result."""
    options = {"warmup": 60, "steps": 1, "tol": tol, "return_info": True}
    (f, expected), (h, actual) = (ops.plap_solve(y, g, 1.5, 0.3, backend=b, **options) for b in ("reference", "cpp"))
    assert actual.steps == expected.steps
    assert error(f, h) < {torch.float32: 1e-6, torch.float64: 1e-12}[y.dtype]
    return int(actual.steps)


@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_early_stop_without_the_host_is_that_of_the_reference(emulated, dtype: torch.dtype, tol: float) -> None:
    g, y = graphs.graph("isolated"), torch.randn(11, 2, 5, dtype=dtype)
    assert 2 < same_early_stop(y, g, tol) < 61
    y[0, 0] = torch.nan  # the first band never settles, whatever the second one does
    _, info = ops.plap_solve(y, g, 1.5, 0.3, warmup=60, steps=1, tol=tol, backend="cpp", return_info=True)
    assert info.steps == 61


def test_early_stop_sees_a_change_in_every_part_of_the_rows(emulated) -> None:
    # Three parts of rows; only two nodes have a neighbour, both in one of them.
    for node in (0, 1500, 2098):
        g = Graph(torch.tensor([[node, node + 1], [node + 1, node]]), 2100)
        y = torch.zeros(2100, 1, 1, dtype=torch.float64)
        y[node] = 1
        assert 3 < same_early_stop(y, g, 1e-3) < 61


@pytest.mark.parametrize("kind", ["self_loops", "directed_weighted_loops"])
@pytest.mark.parametrize("width", [9, 130, 300])
def test_same_bits_in_any_order_of_threads_and_blocks(emulated: ModuleType, width: int, kind: str, monkeypatch) -> None:
    g = graph(kind, torch.int32, monkeypatch, NODES)
    args, grad = inputs(2, width, torch.float32, NODES), torch.randn(NODES, 2, width)
    runs = []
    for seed in range(3):
        emulated.seed(seed)
        several = ops.plap_solve(args[1], g, 1.4, 1.0, warmup=20, steps=1, tol=1e-2, backend="cpp").detach()
        runs.append([*results("cpp", args, g, grad, penalty="rtv"), several])
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))
