"""What is compared with what, on which graphs, and the bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import ChebConv as PyGChebConv

from .. import ops
from ..framelets import Framelet
from ..graph import Graph
from ..nn import ChebConv
from ..nn.models import PLUFG
from ..nn.sparse import sparse_features
from . import baselines, parity
from .graphs import Subject, labelled, subject
from .parity import TOLERANCE
from .results import Bar, Result, score
from .timing import Contestant, Watch, measure

PRODUCT: Final = "torch CSR @ F"
GATHER: Final = "bare gather and add"
ARITHMETIC: Final = "neighbours in the first cache"
MESSAGES: Final = "PyG message passing"
REFERENCE: Final = "reference"
COMPILED: Final = "torch.compile of the reference"
COMPILED_OURS: Final = "torch.compile of pL-UFG2"
RELEASED: Final = "released-style layer"
RELEASED_SYMMETRIC: Final = "released-style, own gradient"

MU: Final = 1.0
# What makes arrays over edges and channels takes part while such an array stays below this.
_MOST_EDGE_BYTES: Final = 500_000_000
_SLOW_ROUNDS: Final = 2


@dataclass(frozen=True)
class Settings:
    """How thoroughly to measure."""

    quick: bool = False
    rounds: int = 30
    threads: int = field(default_factory=torch.get_num_threads)
    root: Path | None = None

    @property
    def budget(self) -> float:
        """Seconds for the rounds of one case."""
        return 0.5 if self.quick else 60.0

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of the signals."""
        return (8,) if self.quick else (32, 64)

    def power_laws(self) -> tuple[Subject, ...]:
        """A graph whose signals fit into the last cache, and one whose signals do not."""
        if self.quick:
            return (subject(500, 5_000),)
        return subject(40_000, 520_000), subject(600_000, 8_300_000)

    def subjects(self) -> tuple[Subject, ...]:
        """The graphs that operators are measured on."""
        data = labelled("computers", self.root, self.quick)
        return *self.power_laws(), Subject(data.name, Graph.from_data(data))


@dataclass(frozen=True)
class Case:
    """One interleaved measurement to make."""

    title: str
    facts: dict[str, Any]
    contestants: list[Contestant]
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def measure(self, group: str, settings: Settings, watch: Watch) -> Result:
        """Measure it."""
        # What other cases compiled counts towards a limit of torch.
        torch.compiler.reset()
        timings = measure(
            self.contestants, settings.rounds, settings.budget, lambda step: watch(f"{self.title}: {step}")
        )
        scores = [found for bar in self.bars if (found := score(bar, timings)) is not None]
        return Result(group, self.title, self.facts, timings, scores, self.notes)


class Bench(NamedTuple):
    """A graph with signals on it, and what is measured on every one."""

    name: str
    graph: Graph
    f: Tensor
    y: Tensor

    @classmethod
    def on(cls, name: str, g: Graph, *shape: int) -> Bench:
        """Random signals of this shape at every node."""
        rng = torch.Generator().manual_seed(0)
        f, y = (torch.randn(g.num_nodes, *shape, generator=rng) for _ in range(2))
        return cls(name, g, f, y)

    @property
    def channels(self) -> int:
        """Channels of the signals."""
        return self.f.size(-1)

    @property
    def title(self) -> str:
        """Graph and width."""
        return f"{self.name}, C = {self.channels}"

    @property
    def facts(self) -> dict[str, Any]:
        """Graph and width, for programs."""
        g = self.graph
        return {"graph": self.name, "nodes": g.num_nodes, "edges": g.num_edges, "channels": self.channels}

    @property
    def moved(self) -> int:
        """Bytes of the rows that one pass over the edges reads: those of an array over edges and channels."""
        return self.graph.num_edges * self.f[0].numel() * self.f.element_size()

    @property
    def edge_arrays(self) -> bool:
        """Whether contestants that make such arrays take part."""
        return self.moved < _MOST_EDGE_BYTES

    def case(self, contestants: list[Contestant], bars: list[Bar]) -> Case:
        """These contestants on this graph."""
        notes = [f"Left out: what makes arrays over edges and channels; each would take {self.moved / 1e9:.1f} GB."]
        return Case(self.title, self.facts, contestants, bars, [] if self.edge_arrays else notes)

    def sums(self, name: str, run: Callable[[], Any], normalised: bool = True) -> Contestant:
        """Something that returns the sum over neighbours."""

        def expected() -> list[Tensor]:
            return [parity.expected_sum(self.f, self.graph, normalised)]

        return Contestant(name, run, expected, TOLERANCE["product"], moved=self.moved)

    def product(self) -> Contestant:
        """Torch's product of a sparse and a dense matrix."""
        matrix = baselines.adjacency(self.graph)
        return self.sums(PRODUCT, lambda: matrix @ self.f)

    def gather(self) -> Contestant:
        """The ceiling of everything that passes over the edges."""
        return self.sums(GATHER, lambda: baselines.gather_sum(self.f, self.graph), normalised=False)

    def arithmetic(self, p: float) -> Contestant:
        """The ceiling of what computes norms on the way, as far as it does not wait for rows."""
        return Contestant(ARITHMETIC, partial(baselines.step_in_cache(self.graph, p, MU), self.f, self.y))

    def messages(self) -> Contestant:
        """The product as PyG's layers take it."""
        passed = baselines.message_passing(self.graph)
        return self.sums(MESSAGES, lambda: passed(self.f))

    def step(self, name: str, p: float, step: Callable[..., Tensor] = ops.plap_step, **options: Any) -> Contestant:
        """The p-step."""

        def expected() -> list[Tensor]:
            return [parity.expected_step(self.f, self.y, self.graph, p, MU)]

        run = partial(step, self.f, self.y, self.graph, p, MU, **options)
        return Contestant(name, run, expected, TOLERANCE["step"], moved=self.moved)


def _benches(settings: Settings) -> Iterator[Bench]:
    for name, g in settings.subjects():
        for channels in settings.widths:
            yield Bench.on(name, g, channels)


def _compiled(function: Callable[..., Any]) -> Any:
    return torch.compile(function, dynamic=False, fullgraph=True)


def ceilings(settings: Settings) -> Iterator[Case]:
    """What the machine can do: stream memory, and gather rows along the edges of every graph."""
    count = 1_000_000 if settings.quick else 64_000_000
    a, b, c = (torch.ones(count) for _ in range(3))
    size = 4 * count
    yield Case(
        f"arrays of {size / 1e6:.0f} MB",
        {"bytes": size},
        [
            Contestant("copy a = b", lambda: a.copy_(b), moved=2 * size),
            Contestant("triad a = b + s c", lambda: torch.add(b, c, alpha=3.0, out=a), moved=3 * size),
        ],
    )
    for bench in _benches(settings):
        yield Case(bench.title, bench.facts, [bench.gather()])


def forward(settings: Settings) -> Iterator[Case]:
    """The p-step against one sparse product, and against its parts: a bare gather, and arithmetic."""
    limits = {1.5: 0.75, 1.0: 0.75, 2.0: 0.5, 1.37: 0.9}
    ours = {p: f"p-step, p = {p:g}" for p in limits}
    main = ours[1.5]
    for bench in _benches(settings):
        contestants = [bench.step(ours[p], p) for p in limits]
        contestants += [bench.product(), bench.gather(), bench.arithmetic(1.5)]
        bars = [Bar(ours[p], PRODUCT, "at most", limit) for p, limit in limits.items()]
        # Signals that fit into a cache are gathered so fast that the arithmetic shows.
        bars.append(Bar(main, GATHER, "at least", 0.6 if bench.graph.num_edges < 2_000_000 else 0.8))
        bars.append(Bar(main, ARITHMETIC, "at least"))
        if bench.edge_arrays:
            others = [bench.messages(), bench.step(REFERENCE, 1.5, backend="reference")]
            if not settings.quick:
                others.append(bench.step(COMPILED, 1.5, _compiled(ops.plap_step), backend="reference"))
            contestants += others
            bars += [Bar(main, other.name, "at least") for other in others]
        yield bench.case(contestants, bars)


def backward(settings: Settings) -> Iterator[Case]:
    """The p-step with its gradients with respect to f and y, p = 1.5, against one sparse product."""
    return map(_backward, _benches(settings))


def _backward(bench: Bench) -> Case:
    p, g = 1.5, bench.graph
    f, y = (signal.clone().requires_grad_() for signal in (bench.f, bench.y))
    grad = torch.randn(f.shape, generator=torch.Generator().manual_seed(1))
    checked = parity.only_checked(grad, g)
    expected = cache(lambda: parity.expected_gradients(checked, f, y, g, p, MU))

    def both(name: str, backend: Any) -> Contestant:
        def run(grad: Tensor = grad) -> tuple[Tensor, ...]:
            return torch.autograd.grad(ops.plap_step(f, y, g, p, MU, backend=backend), (f, y), grad)

        return Contestant(name, run, expected, TOLERANCE["gradient"], result=lambda: run(checked))

    ours = both("p-step and gradients", "auto")
    near = baselines.step_in_cache(g, p, MU)
    arithmetic = Contestant(ARITHMETIC, lambda: torch.autograd.grad(near(f, y), (f, y), grad))
    contestants = [ours, bench.product(), arithmetic]
    bars = [Bar(ours.name, PRODUCT, "at most", 2.5), Bar(ours.name, ARITHMETIC, "at least")]
    if bench.edge_arrays:
        contestants.append(both(REFERENCE, "reference"))
        bars.append(Bar(ours.name, REFERENCE, "at least"))
    return bench.case(contestants, bars)


def bands(settings: Settings) -> Iterator[Case]:
    """The p-step on three bands at once against a call for each, p = 1.5."""
    for name, g in settings.subjects():
        yield _bands(Bench.on(name, g, 3, settings.widths[0]))


def _bands(bench: Bench) -> Case:
    ours = bench.step("three bands at once", 1.5)
    pairs = [(bench.f[:, band].contiguous(), bench.y[:, band].contiguous()) for band in range(3)]

    def one_by_one() -> list[Tensor]:
        return [ops.plap_step(f, y, bench.graph, 1.5, MU) for f, y in pairs]

    single = Contestant(
        "three calls", one_by_one, ours.expected, ours.tolerance, result=lambda: torch.stack(one_by_one(), dim=1)
    )
    return Case(
        f"{bench.name}, 3 bands of {bench.channels}",
        {**bench.facts, "bands": 3},
        [ours, single],
        [Bar(ours.name, single.name, "at most", 0.8)],
    )


def framelet(settings: Settings) -> Iterator[Case]:
    """Framelet analysis and synthesis, three filters of degree 3, against the six products they take."""
    return map(_framelet, _benches(settings))


def _framelet(bench: Bench) -> Case:
    g, x = bench.graph, bench.f
    # As Framelet applies them: lambda_max = 2 goes to pi.
    coeffs, scale = Framelet("linear", degree=3).coeffs, math.pi / 2
    expected = cache(lambda: [parity.expected_roundtrip(x, baselines.adjacency(g, torch.float64), coeffs, scale)])

    def roundtrip(name: str, backend: Any) -> Contestant:
        def run() -> Tensor:
            z = ops.cheb_analysis(x, g, coeffs, scale, backend=backend)
            return ops.cheb_synthesis(z, g, coeffs, scale, backend=backend)

        return Contestant(name, run, expected, TOLERANCE["framelet"], moved=6 * bench.moved)

    matrix = baselines.adjacency(g)
    ours = roundtrip("analysis and synthesis", "auto")
    products = bench.sums("six products, " + PRODUCT, lambda: [matrix @ x for _ in range(6)][-1])
    contestants = [ours, products]
    bars = [Bar(ours.name, products.name, "at most", 0.75)]
    if bench.edge_arrays:
        others = _cheb_convs(bench)
        contestants += [roundtrip(REFERENCE, "reference"), *others]
        bars += [Bar(ours.name, REFERENCE, "at least"), Bar(others[0].name, others[1].name, "at least")]
    return bench.case(contestants, bars)


def _cheb_convs(bench: Bench) -> list[Contestant]:
    """Our ChebConv and PyG's, with the same parameters."""
    theirs = PyGChebConv(bench.channels, bench.channels, K=4).requires_grad_(False)
    ours = ChebConv(bench.channels, bench.channels, K=4).requires_grad_(False)
    ours.load_state_dict(theirs.state_dict())
    exact = ChebConv(bench.channels, bench.channels, K=4, backend="reference").double().requires_grad_(False)
    exact.load_state_dict(theirs.state_dict())
    edges = bench.graph.edge_index
    expected = cache(lambda: [exact(bench.f.double(), bench.graph)])
    return [
        Contestant("ChebConv", partial(ours, bench.f, edges), expected, TOLERANCE["framelet"]),
        Contestant("ChebConv of PyG", partial(theirs, bench.f, edges), expected, TOLERANCE["framelet"]),
    ]


def epoch(settings: Settings) -> Iterator[Case]:
    """One epoch of training pL-UFG2, against the compiled reference and the layer as it was released."""
    for name, over_released in (("computers", 100.0), ("cora", 10.0)):
        yield _epoch(labelled(name, settings.root, settings.quick), over_released, settings.quick)


def _epoch(data: Any, over_released: float, quick: bool) -> Case:
    # As `plufg train` has them, for all who take part: bags of words stay sparse.
    g, x, label = Graph.from_data(data), sparse_features(data.x), data.y
    options: dict[str, Any] = {"p": 1.5, "mu": MU, "warmup": 10, "steps": 4, "degree": 3, "num_nodes": g.num_nodes}
    hidden = 32
    # Without dropout everybody computes the same numbers, and what is compared is what is timed.
    build = partial(PLUFG, data.num_features, hidden, int(label.max()) + 1, dropout=0.0, **options)
    ours = build()

    def twin(conv: nn.Module | None = None, **more: Any) -> PLUFG:
        net = build(**more)
        if conv is not None:
            net.conv = conv
        net.load_state_dict(ours.state_dict())
        return net

    def gradients(net: nn.Module, x: Tensor = x) -> list[Tensor]:
        net.zero_grad()
        F.nll_loss(net(x, g), label).backward()  # type: ignore[no-untyped-call]
        return [parameter.grad for parameter in net.parameters() if parameter.grad is not None]

    def trained(name: str, net: nn.Module, **more: Any) -> Contestant:
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4, fused=True)

        def run() -> None:
            optimizer.zero_grad()
            F.nll_loss(net(x, g), label).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        return Contestant(name, run, tolerance=TOLERANCE["epoch"], **more)

    exact = cache(lambda: gradients(twin(backend="reference").double(), data.x.double()))
    eager, traced = twin(backend="reference"), twin(baselines.TracedConv(hidden, hidden, **options))
    contestants = [
        trained("pL-UFG2", ours, expected=exact, result=lambda: gradients(ours)),
        trained(REFERENCE, eager, expected=exact, result=lambda: gradients(eager)),
    ]
    if not quick:
        # In pieces, for torch does not compile what takes a sparse matrix.
        for name, net in ((COMPILED, traced), (COMPILED_OURS, twin())):
            compiled: Any = torch.compile(net, dynamic=False)
            contestants.append(trained(name, compiled, expected=exact, result=partial(gradients, compiled)))
    # Theirs is another iteration, compared with our parity mode; by values alone, for its gradient may be NaN.
    parity_mode = twin(mode="released", backend="reference").double()
    values = torch.no_grad()(lambda: [parity_mode(data.x.double(), g)])
    framelet = baselines.ExplicitFramelet(g, options["degree"])
    for name, transform in ((RELEASED, framelet), (RELEASED_SYMMETRIC, framelet.with_own_gradient())):
        released = twin(baselines.ReleasedConv(hidden, hidden, g, transform, **options))
        compared = torch.no_grad()(partial(released, x, g))
        contestants.append(trained(name, released, expected=values, result=compared, most_rounds=_SLOW_ROUNDS))
    limits = {COMPILED: 10.0, RELEASED: over_released}
    return Case(
        data.name,
        {"graph": data.name, "nodes": g.num_nodes, "edges": g.num_edges, "channels": hidden, **options},
        contestants,
        [Bar("pL-UFG2", other.name, "at least", limits.get(other.name)) for other in contestants[1:]],
    )


def threads(settings: Settings) -> Iterator[Case]:
    """The p-step, p = 1.5, on all threads against one."""
    name, g = settings.power_laws()[-1]
    for channels in settings.widths:
        bench = Bench.on(name, g, channels)
        many = _on_threads(bench, settings.threads)
        one = _on_threads(bench, 1)
        if many.name != one.name:
            yield bench.case([many, one], [Bar(many.name, one.name, "at least", 1.7)])


def _on_threads(bench: Bench, count: int) -> Contestant:
    step = bench.step(f"{count} thread{'s' if count > 1 else ''}", 1.5)
    return Contestant(
        step.name,
        step.run,
        step.expected,
        step.tolerance,
        prepare=lambda: torch.set_num_threads(count),
        moved=bench.moved,
    )
