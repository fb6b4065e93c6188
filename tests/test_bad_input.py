"""Every refusal: before anything is computed, of the right type, naming where, what was expected and what came."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

import plufg_fast as pf

EDGES = torch.tensor([[0, 1, 2, 1], [1, 0, 1, 2]])
G = pf.Graph(EDGES, 3)
DIRECTED = pf.Graph(EDGES[:, :1], 3)
X = torch.randn(3, 4)
BANDS = torch.randn(3, 2, 4)
C = torch.randn(2, 4)


def csr(pointers: list[int], columns: list[int], size: int = 3) -> torch.Tensor:
    return torch.sparse_csr_tensor(
        torch.tensor(pointers), torch.tensor(columns), torch.ones(len(columns)), (size, size), check_invariants=False
    )


def conv(**options: Any) -> pf.nn.PLUFGConv:
    return pf.nn.PLUFGConv(4, 2, **options)


Case = tuple[str, Callable[[], object], type[Exception], str]

CASES: list[Case] = [
    # Graph: edges
    ("edges-list", lambda: pf.Graph([[0], [1]]), TypeError, "Graph: edge_index must be a [2, E] tensor, EdgeIndex, torch.sparse, SparseTensor or scipy matrix, got a list"),
    ("edges-numpy", lambda: pf.Graph(np.zeros((2, 1))), TypeError, "got a ndarray"),
    ("edges-float", lambda: pf.Graph(torch.rand(2, 3)), TypeError, "edge_index must be an int32 or int64 tensor, got a torch.float32 tensor of shape (2, 3)"),
    ("edges-shape", lambda: pf.Graph(torch.zeros(3, 2, dtype=torch.int64)), ValueError, "edge_index must be of shape [2, E], got a torch.int64 tensor of shape (3, 2)"),
    ("edges-flat", lambda: pf.Graph(torch.zeros(4, dtype=torch.int64)), ValueError, "edge_index must be of shape [2, E]"),
    ("edges-negative", lambda: pf.Graph(torch.tensor([[0, -2], [1, 0]])), ValueError, "edge_index must be non-negative, got -2"),
    ("edges-range", lambda: pf.Graph(EDGES, 2), ValueError, "edge_index must be below num_nodes = 2, got 2"),
    ("edges-graph", lambda: pf.Graph(G), TypeError, "this is a Graph already"),
    ("nodes-negative", lambda: pf.Graph(EDGES, -1), ValueError, "num_nodes must be at least 0, got -1"),
    ("nodes-type", lambda: pf.Graph(EDGES, 3.0), TypeError, "num_nodes must be an int, got 3.0"),
    ("nodes-below-matrix", lambda: pf.Graph(csr([0, 1, 1, 1], [0]), 2), ValueError, "num_nodes must be at least the size 3 of the matrix, got 2"),
    ("flow", lambda: pf.Graph(EDGES, flow="up"), ValueError, "flow must be one of 'source_to_target', 'target_to_source', got 'up'"),
    ("degree", lambda: pf.Graph(EDGES, degree="both"), ValueError, "degree must be one of 'in', 'out', got 'both'"),
    ("laplacian-degree", lambda: pf.Graph(EDGES, laplacian_degree="x"), ValueError, "laplacian_degree must be one of 'in', 'out', got 'x'"),
    ("matrix-flow", lambda: pf.Graph(csr([0, 1, 1, 1], [0]), flow="target_to_source"), ValueError, "flow must be 'source_to_target' for a matrix in the adj_t convention"),
    ("matrix-not-square", lambda: pf.Graph(scipy.sparse.coo_matrix(np.ones((2, 3)))), ValueError, "edge_index must be a square matrix, got shape (2, 3)"),
    ("matrix-and-weights", lambda: pf.Graph(csr([0, 1, 1, 1], [0]), edge_weight=torch.ones(1)), ValueError, "edge_weight must be None: a matrix holds its own weights"),
    ("matrix-truncated", lambda: pf.Graph(csr([0, 1, 1, 3], [0])), ValueError, "edge_index must be a matrix whose row pointers run from 0 to its 1 entries"),
    ("matrix-start", lambda: pf.Graph(csr([1, 1, 1, 1], [0])), ValueError, "whose row pointers run from 0"),
    ("matrix-falling", lambda: pf.Graph(csr([0, 2, 1, 2], [0, 1])), ValueError, "edge_index must be a matrix whose row pointers never fall"),
    ("matrix-column", lambda: pf.Graph(csr([0, 1, 1, 1], [9])), ValueError, "edge_index must be within the size 3 of its matrix, got 9"),
    ("matrix-blocks", lambda: pf.Graph(torch.sparse_coo_tensor(EDGES, torch.rand(4, 2), (3, 3, 2))), ValueError, "edge_index must be a matrix of scalars"),
    ("data-empty", lambda: pf.Graph.from_data(Data(x=X)), TypeError, "Graph.from_data: data must be a Data with edge_index or adj_t, got a Data"),
    ("to-integer", lambda: G.to(torch.int32), ValueError, "Graph.to: dtype must be a floating-point type"),
    # Graph: weights
    ("weight-list", lambda: pf.Graph(EDGES, edge_weight=[1.0]), TypeError, "edge_weight must be a torch.Tensor, got a list"),
    ("weight-shape", lambda: pf.Graph(EDGES, edge_weight=torch.ones(3)), ValueError, "edge_weight must be of shape [4], one per edge, got a torch.float32 tensor of shape (3,)"),
    ("weight-column", lambda: pf.Graph(EDGES, edge_weight=torch.ones(4, 1)), ValueError, "edge_weight must be of shape [4]"),
    ("weight-negative", lambda: pf.Graph(EDGES, edge_weight=torch.tensor([1.0, -0.5, 1, 1])), ValueError, "edge_weight must be non-negative, got -0.5"),
    ("weight-nan", lambda: pf.Graph(EDGES, edge_weight=torch.tensor([1.0, torch.nan, 1, 1])), ValueError, "edge_weight must be finite, got nan"),
    ("weight-inf", lambda: pf.Graph(EDGES, edge_weight=torch.tensor([1.0, torch.inf, 1, 1])), ValueError, "edge_weight must be finite, got inf"),
    ("weight-complex", lambda: pf.Graph(EDGES, edge_weight=torch.ones(4, dtype=torch.complex64)), TypeError, "edge_weight must be real"),
    ("weight-grad", lambda: pf.Graph(EDGES, edge_weight=torch.ones(4, requires_grad=True)), ValueError, "edge_weight must be a constant (pass edge_weight.detach())"),
    ("weight-device", lambda: pf.Graph(EDGES, edge_weight=torch.ones(4, device="meta")), ValueError, "edge_weight must be on the device of edge_index (cpu)"),
    # p-Laplacian operators
    ("f-shape", lambda: pf.ops.plap_step(X[:2], X, G, 1.5, 1.0), ValueError, "plap_step: f must be of shape [3, C] or [3, B, C], got a torch.float32 tensor of shape (2, 4)"),
    ("f-unlike-y", lambda: pf.ops.plap_step(X[:, :2], X, G, 1.5, 1.0), ValueError, "plap_step: f must be of the shape of y (3, 4)"),
    ("f-type", lambda: pf.ops.plap_step(X.double(), X, G, 1.5, 1.0), TypeError, "plap_step: f must be of the type of y (torch.float32)"),
    ("y-integer", lambda: pf.ops.plap_solve(torch.ones(3, 4, dtype=torch.int64), G, 1.5, 1.0), TypeError, "plap_solve: y must be a floating-point tensor"),
    ("y-list", lambda: pf.ops.plap_solve([1.0], G, 1.5, 1.0), TypeError, "plap_solve: y must be a torch.Tensor, got a list"),
    ("y-sparse", lambda: pf.ops.plap_solve(X.to_sparse(), G, 1.5, 1.0), TypeError, "plap_solve: y must be a dense tensor"),
    ("y-device", lambda: pf.ops.plap_solve(X.to("meta"), G, 1.5, 1.0), ValueError, "plap_solve: y must be on the device of the graph (cpu)"),
    ("g-edges", lambda: pf.ops.plap_solve(X, EDGES, 1.5, 1.0), TypeError, "plap_solve: g must be a plufg_fast.Graph, got a torch.int64 tensor"),
    ("p-low", lambda: pf.ops.plap_step(X, X, G, 0.5, 1.0), ValueError, "plap_step: p must be a finite number of at least 1.0, got 0.5"),
    ("p-zero", lambda: pf.ops.plap_step(X, X, G, 0.0, 1.0, eps=0.1), ValueError, "plap_step: p must be a finite number above 0.0, got 0.0"),
    ("p-nan", lambda: pf.ops.plap_step(X, X, G, float("nan"), 1.0), ValueError, "p must be a finite number of at least 1.0, got nan"),
    ("p-text", lambda: pf.ops.plap_step(X, X, G, "2", 1.0), TypeError, "p must be a number, got '2'"),
    ("p-bool", lambda: pf.ops.plap_step(X, X, G, True, 1.0), TypeError, "p must be a number, got True"),
    ("p-tensor-low", lambda: pf.ops.plap_step(BANDS, BANDS, G, torch.tensor([1.5, 0.5]), 1.0), ValueError, "plap_step: p must be finite and at least 1, got 0.5"),
    ("p-tensor-integer", lambda: pf.ops.plap_step(X, X, G, torch.tensor(2), 1.0), TypeError, "p must be a floating-point tensor"),
    ("p-bands", lambda: pf.ops.plap_step(BANDS, BANDS, G, torch.tensor([1.5, 1.5, 1.5]), 1.0), ValueError, "p must be a number or a tensor of one value or 2, one per band"),
    ("mu-zero", lambda: pf.ops.plap_step(X, X, G, 1.5, 0.0), ValueError, "plap_step: mu must be a finite number above 0.0, got 0.0"),
    ("mu-tensor", lambda: pf.ops.plap_step(X, X, G, 1.5, torch.tensor(-1.0)), ValueError, "mu must be finite and above 0, got -1.0"),
    ("mu-underflow", lambda: pf.ops.plap_step(X, X, G, 1.5, 1e-46), ValueError, "mu must be within the range of torch.float32, got 1e-46"),
    ("mu-overflow", lambda: pf.ops.plap_step(X, X, G, 1.5, 1e39), ValueError, "mu must be within the range of torch.float32, got 1e+39"),
    ("mu-tensor-underflow", lambda: pf.ops.plap_step(X, X, G, 1.5, torch.tensor(1e-46, dtype=torch.float64)), ValueError, "mu must be finite and above 0, got 0.0"),
    ("mu-inf", lambda: pf.ops.plap_step(X, X, G, 1.5, float("inf")), ValueError, "mu must be a finite number above 0.0, got inf"),
    ("eps", lambda: pf.ops.plap_step(X, X, G, 1.5, 1.0, eps=-1.0), ValueError, "eps must be a finite number of at least 0.0, got -1.0"),
    ("penalty", lambda: pf.ops.plap_step(X, X, G, 1.5, 1.0, "huber"), ValueError, "penalty must be one of 'power', 'tikhonov', 'tv', 'rtv', 'nldiff', got 'huber'"),
    ("penalty-parameter", lambda: pf.Penalty("rtv", 0.0), ValueError, "Penalty: parameter must be a finite number above 0.0, got 0.0"),
    ("penalty-no-parameter", lambda: pf.Penalty("tv", 1.0), ValueError, "Penalty: parameter must be None for 'tv', got 1.0"),
    ("warmup", lambda: pf.ops.plap_solve(X, G, 1.5, 1.0, warmup=-1), ValueError, "plap_solve: warmup must be at least 0, got -1"),
    ("steps", lambda: pf.ops.plap_solve(X, G, 1.5, 1.0, steps=0), ValueError, "plap_solve: steps must be at least 1, got 0"),
    ("steps-type", lambda: pf.ops.plap_solve(X, G, 1.5, 1.0, steps=2.5), TypeError, "plap_solve: steps must be an int, got 2.5"),
    ("tol", lambda: pf.ops.plap_solve(X, G, 1.5, 1.0, tol=0.0), ValueError, "plap_solve: tol must be a finite number above 0.0, got 0.0"),
    ("tol-without-steps", lambda: pf.ops.plap_solve(X, G, 1.5, 1.0, warmup=0, tol=0.1), ValueError, "plap_solve: tol must be None where no step is without gradient (grad='unroll'), got 0.1"),
    ("tol-of-layer", lambda: pf.nn.PLaplacianConv(4, 2, 5, 1.5, 1.0, tol=0.1), ValueError, "PLaplacianConv: tol must be None where no step is without gradient"),
    ("solver", lambda: pf.ops.plap_solve(X, G, 1.5, 1.0, solver="newton"), ValueError, "solver must be one of 'jacobi', 'irls', got 'newton'"),
    ("grad", lambda: pf.ops.plap_solve(X, G, 1.5, 1.0, grad="none"), ValueError, "grad must be one of 'unroll', 'implicit', got 'none'"),
    ("mode", lambda: pf.ops.plap_solve(X, G, 1.5, 1.0, mode="new"), ValueError, "mode must be one of 'paper', 'released', 'pgnn', got 'new'"),
    ("mode-solver", lambda: pf.ops.plap_solve(X, G, 1.5, 1.0, mode="pgnn", solver="irls"), ValueError, "mode 'pgnn' must be used with solver 'jacobi', grad 'unroll' and penalty 'power', got 'irls'"),
    ("irls-directed", lambda: pf.ops.plap_solve(X, DIRECTED, 1.5, 1.0, solver="irls"), ValueError, "g must be undirected for solver 'irls'"),
    ("backend", lambda: pf.ops.plap_step(X, X, G, 1.5, 1.0, backend="cuda"), ValueError, "backend must be one of 'auto', 'reference', 'triton', 'cpp', got 'cuda'"),
    ("backend-triton", lambda: pf.ops.cheb_analysis(X, G, C, backend="triton"), RuntimeError, "cheb_analysis: backend 'triton' cannot serve"),
    ("gradient-rows", lambda: pf.ops.edge_gradient(X[:2], G), ValueError, "edge_gradient: f must be of shape [3, ...]"),
    ("divergence-rows", lambda: pf.ops.divergence(X, G), ValueError, "divergence: u must be of shape [4, ...]"),
    ("energy-shape", lambda: pf.ops.plap_energy(X, BANDS, G, 1.5, 1.0), ValueError, "plap_energy: f must be of the shape of y (3, 2, 4)"),
    # Chebyshev operators and framelets
    ("coeffs-shape", lambda: pf.ops.cheb_analysis(X, G, C[0]), ValueError, "cheb_analysis: coeffs must be of shape [R, n + 1], R and n + 1 at least 1"),
    ("coeffs-type", lambda: pf.ops.cheb_analysis(X, G, [1.0]), TypeError, "cheb_analysis: coeffs must be a torch.Tensor, got a list"),
    ("x-dims", lambda: pf.ops.cheb_analysis(X[:, 0], G, C), ValueError, "cheb_analysis: x must be of shape [3, C] or [3, B, C]"),
    ("z-bands", lambda: pf.ops.cheb_synthesis(torch.randn(3, 5, 4), G, C), ValueError, "cheb_synthesis: z must be of shape [N, 2, ...], a band per filter"),
    ("z-dims", lambda: pf.ops.cheb_synthesis(X, G, C), ValueError, "cheb_synthesis: z must be of shape [3, R, C] or [3, R, B, C]"),
    ("scale", lambda: pf.ops.cheb_analysis(X, G, C, scale=0.0), ValueError, "cheb_analysis: scale must be a finite number above 0.0, got 0.0"),
    ("weights-recurrence", lambda: pf.ops.poly_analysis(X, G, C, pf.ops.monomial_recurrence(2)), ValueError, "poly_analysis: weights must be of shape [R, 3], one more than the recurrence has steps"),
    ("degree-chebyshev", lambda: pf.ops.chebyshev_recurrence(-1), ValueError, "chebyshev_recurrence: degree must be at least 0, got -1"),
    ("degree-monomial", lambda: pf.ops.monomial_recurrence(-1), ValueError, "monomial_recurrence: degree must be at least 0, got -1"),
    ("degree-jacobi", lambda: pf.ops.jacobi_recurrence(-1, 0.0, 0.0), ValueError, "jacobi_recurrence: degree must be at least 0, got -1"),
    ("recurrence-numbers", lambda: pf.ops.poly_analysis(X, G, C, [1.0, 2.0, 3.0]), ValueError, "poly_analysis: recurrence must be a list of triples (a, b, c), got [1.0, 2.0, 3.0]"),
    ("recurrence-learnable", lambda: pf.ops.poly_analysis(X, G, C, [(torch.ones((), requires_grad=True), 0.0, 0.0)] * 3), TypeError, "poly_analysis: every entry of recurrence must be a number, got a torch.float32 tensor"),
    ("recurrence-nan", lambda: pf.ops.poly_analysis(X, G, C, [(float("nan"), 0.0, 0.0)] * 3), ValueError, "poly_analysis: every entry of recurrence must be a finite number, got nan"),
    ("jacobi", lambda: pf.ops.jacobi_recurrence(3, -1.0, 0.0), ValueError, "jacobi_recurrence: a must be a finite number above -1.0, got -1.0"),
    ("bank", lambda: pf.Framelet("daubechies"), ValueError, "Framelet: bank must be one of 'haar', 'linear', 'quadratic', 'sigmoid', 'entropy', got 'daubechies'"),
    ("bank-single", lambda: pf.Framelet([np.cos]), TypeError, "Framelet: bank must be a name or a sequence of two or more functions"),
    ("bank-not-tight", lambda: pf.Framelet([np.cos, np.cos]), ValueError, "Framelet: bank must be functions whose squares sum to 1"),
    ("bank-nan", lambda: pf.Framelet([lambda x: x * np.nan, np.cos]), ValueError, "Framelet: bank[0] must be a function that maps an array on [0, pi] to finite values"),
    ("levels", lambda: pf.Framelet(levels=0), ValueError, "Framelet: levels must be at least 1, got 0"),
    ("framelet-backend", lambda: pf.Framelet(method="exact", backend="cuda"), ValueError, "Framelet: backend must be one of 'auto', 'reference', 'triton', 'cpp', got 'cuda'"),
    ("framelet-degree", lambda: pf.Framelet(degree=0), ValueError, "Framelet: degree must be at least 1, got 0"),
    ("dilation", lambda: pf.Framelet(dilation=1.0), ValueError, "Framelet: dilation must be a finite number above 1.0, got 1.0"),
    ("framelet-scale", lambda: pf.Framelet(scale="half"), ValueError, "Framelet: scale must be one of 'fit', 'none', 'dyadic', got 'half'"),
    ("lambda-max", lambda: pf.Framelet(lambda_max=0.0), ValueError, "Framelet: lambda_max must be a finite number above 0.0, got 0.0"),
    ("exact-directed", lambda: pf.Framelet(method="exact").analysis(X, DIRECTED), ValueError, "Framelet.analysis: g must be undirected for method 'exact'"),
    ("estimate-directed", lambda: pf.Framelet(lambda_max="estimate").analysis(X, DIRECTED), ValueError, "Framelet: lambda_max must be a number on a directed graph, got 'estimate'"),
    ("synthesis-bands", lambda: pf.Framelet("haar").synthesis(torch.randn(3, 3, 4), G), ValueError, "Framelet.synthesis: z must be of shape [3, 2, C]"),
    # layers
    ("variant", lambda: conv(variant="pl-ufg3"), ValueError, "PLUFGConv: variant must be one of 'pl-ufg1', 'pl-ufg2', 'pl-fufg', got 'pl-ufg3'"),
    ("layer-p-bands", lambda: conv(p=[1.0, 2.0]), ValueError, "PLUFGConv: p must be one value for pl-ufg2, got 2"),
    ("layer-p-text", lambda: conv(p="1.5"), TypeError, "PLUFGConv: p must be a number, got '1.5'"),
    ("layer-p-grad", lambda: conv(p=torch.tensor(1.5, requires_grad=True)), ValueError, "PLUFGConv: p must be a constant (learn_p=True makes it a parameter)"),
    ("weight-overflows", lambda: pf.ops.plap_step(BANDS, BANDS, pf.Graph(EDGES, edge_weight=torch.full((EDGES.size(1),), 1e39, dtype=torch.float64)), 1.5, 1.0), ValueError, "Graph: edge_weight must be within the range of torch.float32, got 1e+39"),
    ("eps-squared", lambda: pf.ops.plap_step(BANDS, BANDS, G, 0.5, 1.0, eps=1e-20), ValueError, "eps must be 0, or large enough that its square is a torch.float32"),
    ("layer-learn-p", lambda: conv(p=0.5, learn_p=True), ValueError, "PLUFGConv: p must be a finite number of at least 1.0, got 0.5"),
    ("layer-p-low", lambda: conv(p=0.5), ValueError, "PLUFGConv: p must be a finite number of at least 1.0, got 0.5"),
    ("layer-steps", lambda: conv(steps=0), ValueError, "PLUFGConv: steps must be at least 1, got 0"),
    ("layer-mode", lambda: conv(mode="relesed"), ValueError, "PLUFGConv: mode must be one of 'paper', 'released', 'pgnn', got 'relesed'"),
    ("layer-flow", lambda: conv(flow="up"), ValueError, "PLUFGConv: flow must be one of"),
    ("layer-cover", lambda: conv(cover="both"), ValueError, "PLUFGConv: cover must be one of 'none', 'sum', 'cat', got 'both'"),
    ("layer-cover-odd", lambda: pf.nn.PLUFGConv(4, 3, cover="cat"), ValueError, "PLUFGConv: out_channels must be even for cover='cat', a half for each copy, got 3"),
    ("layer-backend", lambda: conv(backend="cppp"), ValueError, "PLUFGConv: backend must be one of"),
    ("ufg-theta", lambda: pf.nn.UFGConv(4, 2, theta="x"), ValueError, "UFGConv: theta must be one of"),
    ("pgnn-p-list", lambda: pf.nn.PLaplacianConv(4, 2, 3, [1.0, 2.0], 1.0), ValueError, "PLaplacianConv: p must be one value, got 2"),
    ("layer-x-dims", lambda: conv()(torch.randn(2, 3, 4), G), ValueError, "PLUFGConv: x must be of shape [N, C]"),
    ("layer-num-nodes", lambda: conv(num_nodes=-3), ValueError, "PLUFGConv: num_nodes must be at least 0, got -3"),
    ("cheb-flat", lambda: pf.nn.ChebConv(4, 2, 3)(X[0], EDGES), ValueError, "ChebConv: x must be of shape [..., N, C], got a torch.float32 tensor of shape (4,)"),
    ("recurrence", lambda: pf.ops.poly_analysis(X, G, C, [(1.0, 0.0)] * 3), ValueError, "poly_analysis: recurrence must be a list of triples (a, b, c), got [(1.0, 0.0)"),
    ("layer-mu", lambda: conv(mu=-1.0), ValueError, "PLUFGConv: mu must be a finite number above 0.0, got -1.0"),
    ("theta", lambda: conv(theta="edge"), ValueError, "theta must be one of 'node', 'channel', 'band', got 'edge'"),
    ("theta-nodes", lambda: conv(num_nodes=5)(X, G), ValueError, "theta='node' holds one filter per node of one graph: expected 5 nodes, got 3"),
    ("layer-x", lambda: conv()(torch.randn(4, 4), G), ValueError, "PLUFGConv: x must be of shape [3, C]"),
    ("layer-weight", lambda: conv()(X, G, torch.ones(4)), ValueError, "PLUFGConv: edge_weight must be None beside a Graph"),
    ("released-weighted", lambda: conv(mode="released")(X, EDGES, torch.rand(4)), ValueError, "mode 'released' must be used with an unweighted graph"),
    ("pgnn-steps", lambda: pf.nn.PLaplacianConv(4, 2, K=0, p=1.5, mu=1.0), ValueError, "PLaplacianConv: K must be at least 1, got 0"),
    ("ufg-activation", lambda: pf.nn.UFGConv(4, 2, activation="tanh"), ValueError, "UFGConv: activation must be one of 'relu', 'leaky_relu', 'soft', 'hard', got 'tanh'"),
    ("cheb-normalization", lambda: pf.nn.ChebConv(4, 2, 3, normalization="left"), ValueError, "ChebConv: normalization must be one of 'sym', 'rw', got 'left'"),
    ("cheb-batch", lambda: pf.nn.ChebConv(4, 2, 3)(X, G, lambda_max=torch.ones(2)), ValueError, "ChebConv: batch must be given with one lambda_max per graph, of shape [3], got None"),
    ("cheb-lambda", lambda: pf.nn.ChebConv(4, 2, 3)(X, G, lambda_max=0.0), ValueError, "ChebConv: lambda_max must be finite and above 0, got 0.0"),
    ("cheb-batch-shape", lambda: pf.nn.ChebConv(4, 2, 3)(X, G, batch=torch.zeros(2, dtype=torch.int64), lambda_max=torch.ones(2)), ValueError, "batch must be given with one lambda_max per graph, of shape [3], got a torch.int64 tensor"),
    ("energy-cpp", lambda: pf.ops.plap_energy(X, X, G, 1.5, 1.0, backend="cpp"), RuntimeError, "plap_energy: backend 'cpp' cannot serve"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_refused_with_a_clear_message(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


def test_p_below_one_is_served_with_smoothing() -> None:
    assert torch.isfinite(pf.ops.plap_step(X, X, G, 0.5, 1.0, eps=0.1)).all()
