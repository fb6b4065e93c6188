"""Graphs by name, synthetic graphs and train/validation/test splits.

A graph is a :class:`torch_geometric.data.Data` that also carries its ``name``; splits are boolean masks.
Nothing here reads or changes the global random state.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from .noise import flip_features

HOMOPHILIC = ("cora", "citeseer", "pubmed", "computers", "photo", "cs", "physics")
HETEROPHILIC = ("chameleon", "squirrel", "actor", "wisconsin", "texas", "cornell")
DATASETS = HOMOPHILIC + HETEROPHILIC
OLD_CORNELL = "cornell-old"
"""Cornell as it was published until July 2022, with the words and classes of Texas, and as many papers have it."""
SPLITS = ("random", "released", "public", "geom-gcn")

# name -> class in torch_geometric.datasets, name it takes, folder of the graph below <root>/<class>
_SOURCES = {
    "cora": ("Planetoid", "Cora", "Cora"),
    "citeseer": ("Planetoid", "CiteSeer", "CiteSeer"),
    "pubmed": ("Planetoid", "PubMed", "PubMed"),
    "computers": ("Amazon", "Computers", "Computers"),
    "photo": ("Amazon", "Photo", "Photo"),
    "cs": ("Coauthor", "CS", "CS"),
    "physics": ("Coauthor", "Physics", "Physics"),
    "chameleon": ("WikipediaNetwork", "chameleon", "chameleon/geom_gcn"),
    "squirrel": ("WikipediaNetwork", "squirrel", "squirrel/geom_gcn"),
    "actor": ("Actor", None, "."),
    "wisconsin": ("WebKB", "Wisconsin", "wisconsin"),
    "texas": ("WebKB", "Texas", "texas"),
    "cornell": ("WebKB", "Cornell", "cornell"),
    OLD_CORNELL: ("WebKB", "Cornell", "cornell"),
}


class Split(NamedTuple):
    """Boolean node masks ``[N]``; a node is in at most one of them."""

    train: Tensor
    val: Tensor
    test: Tensor


def load(
    name: str,
    root: str | Path | None = None,
    *,
    undirected: bool = False,
    normalize_features: bool = False,
    largest_component: bool = False,
    self_loops: bool = False,
    noise: float = 0.0,
    noise_seed: int = 0,
) -> Data:
    """One of the thirteen node classification graphs (:data:`DATASETS`), or :data:`OLD_CORNELL`.

    Args:
        name: The graph, in any case.
        root: A folder in PyG's layout (``<root>/Planetoid/Cora/raw`` and so on), default ``$PLUFG_DATA``. It
            may be read-only: what PyG derives from the raw files goes to the cache, ``$PLUFG_CACHE`` or
            ``~/.cache/plufg_fast``. Without a root PyG downloads into the cache.
        undirected: Whether to add the reverse of every edge. By default the graph stays as it is published:
            the homophilic graphs are undirected, the heterophilic ones directed.
        normalize_features: Whether to scale every feature row to sum 1.
        largest_component: Whether to keep only the largest (weakly) connected component.
        self_loops: Whether every node gets an edge to itself. Of the networks here only those with the p-Laplacian step
            notice: at p = 2 a node then counts among its neighbours, as in GCN and APPNP, which see to that themselves;
            at another p its degree grows, no more.
        noise: Share of the binary features to flip (:func:`plufg_fast.noise.flip_features`), before they are scaled.
        noise_seed: Fixes which.

    Raises:
        ValueError: If there is no graph of that name, or its features are not binary where ``noise`` is given.
        FileNotFoundError: If there is no folder ``root``, or it does not hold the graph and cannot be written to.
    """
    import torch_geometric.transforms as transforms

    key = name.lower()
    if key not in _SOURCES:
        raise ValueError(f"load: unknown dataset {name!r}; known are {', '.join(_SOURCES)}")
    if root is None:
        root = os.environ.get("PLUFG_DATA") or None
    data = _read(key, None if root is None else Path(root).expanduser().resolve())
    data.name = key
    if undirected:
        data = transforms.ToUndirected()(data)
    if largest_component:
        data = transforms.LargestConnectedComponents(connection="weak")(data)
    if self_loops:
        data = transforms.AddRemainingSelfLoops()(data)
    if noise:
        data.x = flip_features(data.x, noise, noise_seed)
    if normalize_features:
        data = transforms.NormalizeFeatures()(data)
    return data


def _cache_dir() -> Path:
    return Path(os.environ.get("PLUFG_CACHE") or "~/.cache/plufg_fast").expanduser().resolve()


def _read(key: str, root: Path | None) -> Data:
    family, _, folder = _SOURCES[key]
    # Two versions of one graph must not meet in one folder.
    download = f"{family}_{key}" if key == OLD_CORNELL else family
    if root is None:
        return _downloaded(key, _cache_dir() / "data" / download)
    if not root.is_dir():
        raise FileNotFoundError(f"load: no folder {root}; without a root and $PLUFG_DATA PyG downloads to the cache")
    files = _raw_files(key, root)
    if files is None:
        if not os.access(root, os.W_OK):
            wanted = root / family / folder / "raw"
            raise FileNotFoundError(f"load: no {key} in {root}: {wanted} is missing and nothing can be written there")
        return _downloaded(key, root / download)

    # PyG writes processed/ beside raw/. Both live in the cache, raw/ as links; the folder is named after
    # what the raw files are, so another or a changed root never meets a stale one.
    stamp = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files.values()]
    cached = _cache_dir() / f"{key}-{hashlib.sha256(repr(stamp).encode()).hexdigest()[:16]}"
    if not cached.is_dir():
        # Built aside and moved into place whole: neither a crash nor a second process leaves half a folder.
        cached.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=cached.parent))
        try:
            raw = building / folder / "raw"
            raw.mkdir(parents=True)
            for name, path in files.items():
                (raw / name).symlink_to(path)
            _dataset(key, building)
            if not cached.is_dir():
                building.rename(cached)
        except OSError:
            # Another process finished first; its result is the same.
            if not cached.is_dir():
                raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    data = _dataset(key, cached)[0]
    if family == "Planetoid":
        _attach_geom_gcn(data, key, root)
    return data


def _raw_files(key: str, root: Path) -> dict[str, Path] | None:
    """The raw files of a graph below ``root`` by the names that PyG looks for, or None if they are not there."""
    family, _, folder = _SOURCES[key]
    raw = root / family / folder / "raw"
    files = {path.name: path for path in sorted(raw.iterdir()) if path.is_file()} if raw.is_dir() else {}
    if not files:  # also where a download has failed
        return None
    if key == OLD_CORNELL:
        files["out1_node_feature_label.txt"] = root / "WebKB" / "texas" / "raw" / "out1_node_feature_label.txt"
        files["out1_graph_edges.txt"] = root / "WebKB_cornell_before_2022" / "out1_graph_edges.txt"
        if not all(path.is_file() for path in files.values()):
            return None
    return files


def _dataset(key: str, root: Path, **options: Any) -> Any:
    import torch_geometric.datasets

    family, name, _ = _SOURCES[key]
    make = getattr(torch_geometric.datasets, family)
    if key == OLD_CORNELL:
        # PyG takes Wikipedia's graphs from a fixed version of the same collection, from before the correction.
        url = torch_geometric.datasets.WikipediaNetwork.processed_url
        make = type("WebKB", (make,), {"url": url})
    if family == "WikipediaNetwork":
        return make(str(root), name, geom_gcn_preprocess=True)
    return make(str(root)) if name is None else make(str(root), name, **options)


def _downloaded(key: str, root: Path) -> Data:
    """A graph that PyG downloads, Planetoid's with the ten splits of Geom-GCN, too, which PyG has as a dataset."""
    try:
        data: Data = _dataset(key, root)[0]
        fixed = _dataset(key, root, split="geom-gcn")[0] if _SOURCES[key][0] == "Planetoid" else None
    except OSError as error:
        raise OSError(
            f"load: there is no {key} in {root}, and downloading it failed: {error}; a root ($PLUFG_DATA) names a "
            f"folder that has it, as {'/'.join(('ROOT', _SOURCES[key][0], _SOURCES[key][2], 'raw'))}"
        ) from error
    if fixed is not None:
        for part in ("train_mask", "val_mask", "test_mask"):
            data[f"geom_gcn_{part}"] = fixed[part].bool()  # [N, 10]
    return data


def _attach_geom_gcn(data: Data, key: str, root: Path) -> None:
    """Planetoid's own masks are the public split; the ten of Geom-GCN go beside them, ``geom_gcn_*_mask``."""
    _, name, _ = _SOURCES[key]
    for folder in (root / "Planetoid_geom_gcn_splits", root / "Planetoid" / str(name) / "geom-gcn" / "raw"):
        paths = [folder / f"{key}_split_0.6_0.2_{i}.npz" for i in range(10)]
        if all(path.is_file() for path in paths):
            for part in ("train_mask", "val_mask", "test_mask"):
                masks = [torch.from_numpy(np.load(path)[part]).bool() for path in paths]
                data[f"geom_gcn_{part}"] = torch.stack(masks, dim=1)  # [N, 10]
            return


def csbm(
    num_nodes: int = 1000,
    num_features: int = 100,
    avg_degree: float = 10.0,
    phi: float = 0.5,
    epsilon: float = 3.25,
    seed: int = 0,
) -> Data:
    r"""A contextual stochastic block model: two classes, told by the edges, by the features, or by both.

    Labels :math:`v_i = \pm 1` are balanced. Two nodes are joined with probability

    .. math::
        (d + \lambda \sqrt d) / n \text{ within a class,} \qquad (d - \lambda \sqrt d) / n \text{ across,}

    and node :math:`i` has the features :math:`\sqrt{\mu / n}\, v_i u + w_i / \sqrt f`, where
    :math:`u \sim N(0, I_f / f)` is one direction for the whole graph and :math:`w_i \sim N(0, I_f)` is noise.
    With :math:`\xi = n / f` the classes can be told from both sources together exactly when
    :math:`\lambda^2 + \mu^2 / \xi > 1`. So ``epsilon`` fixes :math:`\lambda^2 + \mu^2 / \xi = 1 + \epsilon`,
    and the angle on that arc, :math:`\phi = \frac{2}{\pi} \arctan(\lambda \sqrt\xi / \mu)`, says where the
    information lies:

    .. math::
        \lambda = \sqrt{1 + \epsilon}\, \sin(\phi \pi / 2), \qquad
        \mu = \sqrt{\xi (1 + \epsilon)}\, \cos(\phi \pi / 2).

    ``phi = 0``: in the features alone; ``1``: in the edges alone, homophilic; ``-1``: the same, heterophilic.
    The expected share of edges within a class is :math:`(1 + \lambda / \sqrt d) / 2`.

    Args:
        num_nodes: The number of nodes :math:`n`.
        num_features: The number of features :math:`f`.
        avg_degree: The expected number of neighbours :math:`d`.
        phi: The homophily parameter :math:`\phi`, from -1 to 1.
        epsilon: How far the information lies above the threshold.
        seed: Fixes the graph; the global random state is neither read nor changed.

    Raises:
        ValueError: If an argument is out of range or the edge probabilities leave [0, 1].
    """
    if num_nodes < 4 or num_features < 1:
        raise ValueError(f"csbm: expected num_nodes >= 4, num_features >= 1, got {num_nodes}, {num_features}")
    if not 0.0 < avg_degree < num_nodes:
        raise ValueError(f"csbm: expected 0 < avg_degree < num_nodes ({num_nodes}), got {avg_degree}")
    if not -1.0 <= phi <= 1.0:
        raise ValueError(f"csbm: expected phi in [-1, 1], got {phi}")
    if not epsilon >= -1.0:
        raise ValueError(f"csbm: expected epsilon >= -1, got {epsilon}")
    lam = math.sqrt(1.0 + epsilon) * math.sin(phi * math.pi / 2)
    within = (avg_degree + lam * math.sqrt(avg_degree)) / num_nodes
    across = (avg_degree - lam * math.sqrt(avg_degree)) / num_nodes
    if min(within, across) < 0.0 or max(within, across) > 1.0:
        advice = f"lower epsilon or raise avg_degree={avg_degree} (its root must be at least {abs(lam):.3g})"
        if max(within, across) > 1.0:
            advice = f"raise num_nodes={num_nodes} or lower avg_degree={avg_degree}"
        raise ValueError(
            f"csbm: phi={phi} and epsilon={epsilon} need edge probabilities {within:.3g} and {across:.3g}; {advice}"
        )

    rng = np.random.default_rng(seed)
    label = np.zeros(num_nodes, dtype=np.int64)
    label[num_nodes // 2 :] = 1
    label = rng.permutation(label)
    zeros, ones = np.flatnonzero(label == 0), np.flatnonzero(label == 1)
    pairs = [
        zeros[_sample_pairs_within(len(zeros), within, rng)],
        ones[_sample_pairs_within(len(ones), within, rng)],
    ]
    chosen = _sample(len(zeros) * len(ones), across, rng)
    pairs.append(np.stack([zeros[chosen // len(ones)], ones[chosen % len(ones)]]))
    half = np.concatenate(pairs, axis=1)  # each undirected edge once
    edge_index = np.concatenate([half, half[::-1]], axis=1)
    edge_index = edge_index[:, np.lexsort((edge_index[1], edge_index[0]))]

    mu = math.sqrt(num_nodes / num_features * (1.0 + epsilon)) * math.cos(phi * math.pi / 2)
    direction = rng.standard_normal(num_features) / math.sqrt(num_features)
    noise = rng.standard_normal((num_nodes, num_features)) / math.sqrt(num_features)
    x = math.sqrt(mu / num_nodes) * np.outer(2 * label - 1, direction) + noise
    data = Data(
        x=torch.from_numpy(x.astype(np.float32)),
        edge_index=torch.from_numpy(edge_index),
        y=torch.from_numpy(label),
    )
    data.name = "csbm"
    return data


def _sample(population: int, probability: float, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Each of ``range(population)`` kept with the probability, in memory of what is kept."""
    count = rng.binomial(population, probability)
    return rng.choice(population, size=count, replace=False, shuffle=False)


def _sample_pairs_within(size: int, probability: float, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Each pair ``j < i < size`` kept with the probability: ``[2, pairs]``."""
    index = _sample(size * (size - 1) // 2, probability, rng)
    # Pair (i, j) has the index i (i - 1) / 2 + j; if the root rounds to a neighbour of i, two steps mend it.
    i = ((1.0 + np.sqrt(1.0 + 8.0 * index)) / 2.0).astype(np.int64)
    i -= i * (i - 1) // 2 > index
    i += i * (i + 1) // 2 <= index
    return np.stack([i, index - i * (i - 1) // 2])


def default_rates(name: str) -> tuple[float, float]:
    """The paper's shares of training and validation nodes: 60, 20 % on heterophilic graphs, else 20, 10 %."""
    return (0.6, 0.2) if name in (*HETEROPHILIC, OLD_CORNELL) else (0.2, 0.1)


def split(
    data: Data,
    kind: str = "random",
    seed: int | None = None,
    *,
    rates: tuple[float, float] | None = None,
    per_class: bool = True,
) -> Split:
    """Training, validation and test nodes. A warning names classes that are in none of the three.

    Args:
        data: The graph.
        kind: ``"random"`` draws the shares ``rates`` within every class, or of all nodes, and leaves the rest for
            testing. ``"released"`` is the split behind the paper's tables: ``int(N / classes * rate)`` nodes of
            every class, whatever its size, the rest of the class for testing. A class with no more nodes than the
            two quotas is in *no* mask, which makes small graphs easy. ``"public"`` is the fixed split that comes
            with the graph, ``"geom-gcn"`` one of Geom-GCN's ten.
        seed: Fixes the draw of ``"random"`` (default 0) and ``"released"`` (default 2021, as in its
            code) and chooses the split ``seed % 10`` of ``"geom-gcn"``.
        rates: Shares of training and validation nodes for ``"random"`` and ``"released"``, by default
            :func:`default_rates` of the graph.
        per_class: Whether ``"random"`` draws within every class.

    Raises:
        ValueError: If the kind is unknown or does not take an option, the graph comes without the fixed split, or
            a mask is empty.
    """
    if kind not in SPLITS:
        raise ValueError(f"split: unknown kind {kind!r}; known are {', '.join(SPLITS)}")
    if rates is not None and kind in ("public", "geom-gcn"):
        raise ValueError(f"split: {kind!r} is fixed and takes no rates, got {rates}")
    if not per_class and kind != "random":
        raise ValueError(f"split: only 'random' draws from all nodes together, got per_class=False with {kind!r}")
    if kind in ("public", "geom-gcn"):
        masks = _fixed(data, kind, seed)
    else:
        masks = _drawn(data, kind, seed, default_rates(data.get("name", "")) if rates is None else rates, per_class)
    counts = [int(mask.sum()) for mask in masks]
    if 0 in counts:
        shown = ", ".join(map(str, counts))
        raise ValueError(f"split: every mask needs a node, got {shown} training, validation and test nodes")
    outside = set(data.y.unique().tolist()) - set(data.y[masks.train | masks.val | masks.test].unique().tolist())
    if outside:
        nodes = int(torch.isin(data.y, torch.tensor(sorted(outside), device=data.y.device)).sum())
        names = ", ".join(map(str, sorted(outside)))
        warnings.warn(
            f"split: class{'es' if len(outside) > 1 else ''} {names} in no mask of {kind!r} ({nodes} nodes)",
            stacklevel=2,
        )
    return masks


def _drawn(data: Data, kind: str, seed: int | None, rates: tuple[float, float], per_class: bool) -> Split:
    train_rate, val_rate = rates
    if not (train_rate > 0.0 and val_rate > 0.0 and train_rate + val_rate < 1.0):
        raise ValueError(f"split: expected positive rates of sum below 1, got {train_rate} and {val_rate}")
    label = data.y.cpu().numpy()
    classes = int(label.max()) + 1
    masks = np.zeros((3, len(label)), dtype=bool)
    if kind == "released":
        quotas = [int(len(label) / classes * rate) for rate in rates]
        # The legacy generator, asked once per class in this order, draws the nodes behind the tables.
        legacy = np.random.RandomState(2021 if seed is None else seed)
        for c in range(classes):
            nodes = np.flatnonzero(label == c)
            if len(nodes) > sum(quotas):
                parts = np.split(legacy.permutation(len(nodes)), np.cumsum(quotas))
                for mask, part in zip(masks, parts, strict=True):
                    mask[nodes[part]] = True
    else:
        rng = np.random.default_rng(0 if seed is None else seed)
        groups = [np.flatnonzero(label == c) for c in range(classes)] if per_class else [np.arange(len(label))]
        for group in groups:
            nodes = rng.permutation(group)
            # A class that exists can be learned: its first node is a training node.
            train = max(round(train_rate * len(nodes)), min(1, len(nodes)))
            val = min(round(val_rate * len(nodes)), len(nodes) - train)
            for mask, part in zip(masks, np.split(nodes, [train, train + val]), strict=True):
                mask[part] = True
    return Split(*torch.from_numpy(masks).to(data.y.device).unbind())


def _fixed(data: Data, kind: str, seed: int | None) -> Split:
    geom_gcn = kind == "geom-gcn"
    prefix = "geom_gcn_" if geom_gcn and "geom_gcn_train_mask" in data else ""
    masks = [data.get(f"{prefix}{part}_mask") for part in ("train", "val", "test")]
    if any(mask is None or mask.dim() != (2 if geom_gcn else 1) for mask in masks):
        name = data.get("name", "this graph")
        missing = f"split: {name} comes without the {kind!r} split"
        if geom_gcn and _SOURCES.get(name, ("",))[0] == "Planetoid":
            missing += f" ({name}_split_0.6_0.2_0.npz and so on, in Planetoid_geom_gcn_splits below the root)"
        raise ValueError(f"{missing}; 'random' and 'released' always work")
    found = cast("list[Tensor]", masks)
    return Split(*((mask[:, (seed or 0) % 10] if geom_gcn else mask).clone() for mask in found))


def fold(masks: Split, label: Tensor, number: int, seed: int = 0) -> Split:
    """A split with other validation nodes: in every class as many as before, out of its training and validation nodes.

    The folds of one seed are blocks of one random order, which begins again at its end: they are disjoint for as long
    as there are nodes left, so that 4 folds of 60 training and 20 validation nodes validate each of the 80 once. Test
    nodes stay what they are.

    Args:
        masks: The split to start from.
        label: The class of every node.
        number: Which fold, from 0.
        seed: Fixes the order.
    """
    classes, was_val = label.cpu().numpy(), masks.val.cpu().numpy()
    known = masks.train.cpu().numpy() | was_val
    is_val = np.zeros_like(was_val)
    rng = np.random.default_rng(seed)
    for c in np.unique(classes[known]):
        nodes = rng.permutation(np.flatnonzero(known & (classes == c)))
        count = int(was_val[nodes].sum())
        is_val[np.roll(nodes, -number * count)[:count]] = True
    train, val = (torch.from_numpy(mask).to(label.device) for mask in (known & ~is_val, is_val))
    return Split(train, val, masks.test)


def majority_accuracy(label: Tensor, mask: Tensor) -> float:
    """The accuracy on ``mask`` of always answering its most frequent class: what a result has to beat."""
    chosen = label[mask]
    return float(torch.bincount(chosen).max()) / chosen.numel()


def homophily(edge_index: Tensor, label: Tensor) -> float:
    """The share of edges, self-loops left out, that join two nodes of the same class."""
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    return float((label[source] == label[target]).float().mean())
