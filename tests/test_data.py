"""Graphs and splits."""

import math
import os
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import contains_self_loops, is_undirected
from webkb import write_webkb

from plufg_fast import data as datasets
from plufg_fast.data import csbm, fold, homophily, load, majority_accuracy, split

DATA = Path(os.environ.get("PLUFG_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no datasets: set PLUFG_DATA ({DATA} is missing)")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUFG_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def labelled() -> Data:
    """Classes of 60, 30 and 10 nodes."""
    y = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    return Data(x=torch.zeros(100, 1), edge_index=torch.zeros(2, 0, dtype=torch.long), y=y)


def counts(masks: datasets.Split) -> list[int]:
    assert int(sum(mask.long() for mask in masks).max()) == 1, "a node is in two masks"
    return [int(mask.sum()) for mask in masks]


@pytest.mark.parametrize("phi", [-1.0, -0.5, 0.0, 0.4, 0.9])
def test_csbm_degree_and_homophily_match_the_parameters(phi):
    n, d, epsilon = 4000, 10.0, 3.25
    graph = csbm(n, 20, d, phi, epsilon, seed=3)
    edges = graph.edge_index.size(1)
    assert edges / n == pytest.approx(d, abs=5 * math.sqrt(2 * d / n))
    expected = (1 + math.sqrt(1 + epsilon) * math.sin(phi * math.pi / 2) / math.sqrt(d)) / 2
    # Five standard deviations of a share of edges / 2 independent draws.
    assert homophily(graph.edge_index, graph.y) == pytest.approx(expected, abs=5 * 0.5 / math.sqrt(edges / 2))


def test_csbm_graph_is_simple_and_undirected_and_the_classes_are_balanced():
    graph = csbm(501, 7, 6.0, 0.3, seed=1)
    assert graph.x.shape == (501, 7)
    assert graph.x.dtype == torch.float32
    assert is_undirected(graph.edge_index, num_nodes=501)
    assert not contains_self_loops(graph.edge_index)
    assert torch.unique(graph.edge_index, dim=1).size(1) == graph.edge_index.size(1)
    assert sorted(torch.bincount(graph.y).tolist()) == [250, 251]


@pytest.mark.parametrize("phi", [0.0, 0.5, -0.8, 1.0])
def test_csbm_features_carry_the_signal_the_edges_do_not(phi: float) -> None:
    # Rows are sqrt(mu / n) v u + w / sqrt(f): their mean along v has the squared length (mu |u|^2 + |w|^2 / f) / n.
    n, f, epsilon, sizes = 1000, 1000, 3.25, []
    for seed in range(10):
        graph = csbm(n, f, 10.0, phi, epsilon, seed=seed)
        sign = (2 * graph.y - 1).float().unsqueeze(1)
        sizes.append(n * float((sign * graph.x).mean(0).square().sum()))
        rest = graph.x - sign * (sign * graph.x).mean(0)
        assert float(rest.square().mean()) == pytest.approx(1 / f, rel=0.01), "noise"
    mu = math.sqrt(n / f * (1 + epsilon)) * math.cos(phi * math.pi / 2)
    # Ten graphs have a standard deviation of 0.04 at most.
    assert sum(sizes) / len(sizes) - 1 == pytest.approx(mu, abs=0.15)


def test_csbm_same_seed_same_graph_and_another_seed_another():
    a, b, c = (csbm(300, 5, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.edge_index, b.edge_index)
    assert torch.equal(a.y, b.y)
    assert not torch.equal(a.y, c.y)


def test_drawing_graphs_and_splits_leaves_the_global_random_state_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    graph = csbm(200, 5)
    split(graph, "random", 1)
    split(graph, "released")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


@pytest.mark.parametrize(
    "bad",
    [{"phi": 1.1}, {"num_nodes": 2}, {"num_features": 0}, {"avg_degree": 0.0}, {"epsilon": -2.0},
     {"phi": float("nan")}],
)  # fmt: skip
def test_csbm_refuses_what_it_cannot_draw(bad):
    with pytest.raises(ValueError, match="csbm"):
        csbm(**bad)


@pytest.mark.parametrize(
    ("bad", "advice"),
    [
        ({"avg_degree": 3.0, "phi": 1.0}, "lower epsilon or raise avg_degree=3.0"),
        ({"num_nodes": 12}, "raise num_nodes=12 or lower avg_degree=10.0"),
    ],
)
def test_csbm_says_what_would_make_it_possible(bad, advice):
    with pytest.raises(ValueError, match=f"edge probabilities .*{advice}"):
        csbm(**bad)


def test_random_split_keeps_the_shares_within_every_class(labelled):
    masks = split(labelled, "random", 0, rates=(0.6, 0.2))
    assert counts(masks) == [60, 20, 20]
    for label, size in enumerate((60, 30, 10)):
        inside = labelled.y == label
        assert [int((mask & inside).sum()) for mask in masks] == [size * 6 // 10, size // 5, size // 5]


def test_random_split_of_all_nodes_keeps_the_shares_over_all(labelled):
    masks = split(labelled, "random", 0, rates=(0.6, 0.2), per_class=False)
    assert counts(masks) == [60, 20, 20]
    drawn = [int(masks.train[labelled.y == 2].sum()) for masks in (
        split(labelled, "random", seed, rates=(0.6, 0.2), per_class=False) for seed in range(10)
    )]  # fmt: skip
    assert len(set(drawn)) > 1, "a class has no share of its own"


def test_random_split_follows_its_seed(labelled):
    first, again, other = (split(labelled, "random", seed) for seed in (1, 1, 2))
    assert torch.equal(first.train, again.train)
    assert not torch.equal(first.train, other.train)


def test_random_split_trains_on_a_class_of_one_node():
    y = torch.tensor([0] * 40 + [1])
    masks = split(Data(y=y, x=torch.zeros(41, 1)), "random", 0)
    assert bool(masks.train[40])


def test_released_split_has_class_quotas_and_drops_small_classes_with_a_warning(labelled):
    # Quotas int(100 / 3 * 0.2) = 6 and int(100 / 3 * 0.1) = 3 fit all three classes ...
    assert counts(split(labelled, "released", rates=(0.2, 0.1))) == [18, 9, 73]
    # ... 20 and 6 are more than class 2 has, so that its nodes are nowhere.
    with pytest.warns(UserWarning, match=r"class 2 in no mask of 'released' \(10 nodes\)"):
        masks = split(labelled, "released", rates=(0.6, 0.2))
    assert counts(masks) == [40, 12, 38]
    assert not any(bool(mask[labelled.y == 2].any()) for mask in masks)


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        # np.random.RandomState(2021): permutation(7) = 2 3 6 0 1 5 4, then permutation(5) = 0 1 2 3 4.
        (None, ({1, 3, 4, 5}, {6, 11}, {0, 2, 7, 8, 9, 10})),
        (7, ({3, 8, 9, 10}, {0, 6}, {1, 2, 4, 5, 7, 11})),
    ],
)
def test_released_split_draws_the_nodes_behind_the_tables(seed: int | None, expected: tuple[set[int], ...]) -> None:
    # Quotas int(12 / 2 * 0.4) = 2 and int(12 / 2 * 0.2) = 1 of each class: first the nodes 0 2 3 5 7 8 11, then the
    # nodes 1 4 6 9 10, each in the order of a permutation of the generator that the released code asks.
    y = torch.tensor([0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0])
    masks = split(Data(y=y, x=torch.zeros(12, 1)), "released", seed, rates=(0.4, 0.2))
    assert tuple(set(mask.nonzero().flatten().tolist()) for mask in masks) == expected


def test_released_split_does_not_depend_on_who_else_draws(labelled):
    first = split(labelled, "released")
    np.random.seed(0)  # noqa: NPY002 - the global state is what is tested
    torch.manual_seed(0)
    assert torch.equal(first.train, split(labelled, "released").train)


def test_a_class_as_large_as_its_quotas_is_dropped_too():
    y = torch.tensor([0] * 70 + [1] * 30)
    with pytest.warns(UserWarning, match="class 1 in no mask"):
        masks = split(Data(y=y, x=torch.zeros(100, 1)), "released", rates=(0.4, 0.2))
    assert counts(masks) == [20, 10, 40]


def test_folds_validate_every_known_node_once_and_leave_test_nodes_alone(labelled):
    masks = split(labelled, "random", rates=(0.6, 0.2))
    folds = [fold(masks, labelled.y, number) for number in range(5)]
    for other in folds:
        assert counts(other) == counts(masks)
        assert torch.equal(other.test, masks.test)
        for part, before in zip(other, masks, strict=True):
            assert torch.equal(labelled.y[part].bincount(), labelled.y[before].bincount())
    times = torch.stack([other.val for other in folds[:4]]).long().sum(dim=0)
    assert torch.equal(times, (masks.train | masks.val).long()), "4 folds of 3 to 1 parts are a partition"
    assert torch.equal(folds[4].val, folds[0].val), "the order begins again"
    assert not torch.equal(fold(masks, labelled.y, 0, seed=1).val, folds[0].val)


def test_fixed_splits_are_read_from_the_graph(labelled):
    labelled.train_mask, labelled.val_mask, labelled.test_mask = torch.eye(3, 100).bool()
    with pytest.warns(UserWarning, match=r"classes 1, 2 in no mask of 'public' \(40 nodes\)"):
        assert counts(split(labelled, "public")) == [1, 1, 1]
    with pytest.raises(ValueError, match="geom-gcn"):
        split(labelled, "geom-gcn")
    ten = torch.stack([torch.arange(100) % 10 == i for i in range(10)], dim=1)
    labelled.train_mask, labelled.val_mask, labelled.test_mask = ten, ten.roll(1, 1), ten.roll(2, 1)
    assert torch.equal(split(labelled, "geom-gcn", 13).train, ten[:, 3])
    with pytest.raises(ValueError, match="public"):
        split(labelled, "public")


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("half", {}, "unknown kind 'half'; known are random"),
        ("random", {"rates": (0.6, 0.4)}, "sum below 1, got 0.6 and 0.4"),
        ("random", {"rates": (0.0, 0.5)}, "positive rates"),
        ("public", {}, "comes without the 'public' split"),
        ("geom-gcn", {"rates": (0.6, 0.2)}, "'geom-gcn' is fixed and takes no rates"),
        ("released", {"per_class": False}, "per_class=False with 'released'"),
    ],
)
def test_split_refuses_bad_arguments(labelled, kind, options, words):
    with pytest.raises(ValueError, match=f"split: .*{words}"):
        split(labelled, kind, **options)


def test_split_refuses_to_leave_a_mask_empty():
    with pytest.raises(ValueError, match="every mask needs a node"):
        split(Data(y=torch.tensor([0, 1]), x=torch.zeros(2, 1)), "random")


def test_majority_accuracy_counts_only_the_masked_nodes():
    y = torch.tensor([0, 0, 0, 1, 1, 2])
    assert majority_accuracy(y, torch.tensor([True, False, False, True, True, True])) == 0.5


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="cora, citeseer"):
        load("core")


def test_a_read_only_root_without_the_graph_is_an_error_not_a_download(tmp_path, monkeypatch):
    # Permissions would not stop the superuser.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FileNotFoundError, match="no cora in"):
        load("cora", tmp_path)


def test_a_mistyped_root_is_an_error_not_a_download(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*typo"):
        load("cora", tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


# Nodes, columns of edge_index, features, classes: the table that comes with the data.
@needs_data
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "homophily_"),
    [
        ("cora", 2708, 10556, 1433, 7, 0.810),
        ("citeseer", 3327, 9104, 3703, 6, 0.736),
        ("wisconsin", 251, 515, 1703, 5, 0.178),
        ("texas", 183, 325, 1703, 5, 0.061),
        ("cornell", 183, 298, 1703, 5, 0.123),
        ("actor", 7600, 30019, 932, 5, 0.217),
    ],
)
def test_real_graphs_have_their_published_size(name, nodes, edges, features, classes, homophily_):
    graph = load(name, DATA)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (nodes, edges, features)
    assert int(graph.y.max()) + 1 == classes
    assert graph.is_undirected() == (name in datasets.HOMOPHILIC)
    both_ways = load(name, DATA, undirected=True)
    assert both_ways.is_undirected()
    assert homophily(both_ways.edge_index, both_ways.y) == pytest.approx(homophily_, abs=5e-4)
    assert min(counts(split(graph, "geom-gcn", 9))) > 0


@needs_data
def test_old_cornell_has_the_edges_of_cornell_and_the_words_and_classes_of_texas():
    old, new, texas = (load(name, DATA) for name in ("cornell-old", "cornell", "texas"))
    assert torch.equal(old.x, texas.x)
    assert torch.equal(old.y, texas.y)
    assert torch.bincount(old.y).tolist() == [33, 1, 18, 101, 30]
    assert old.num_edges == new.num_edges == 298
    source, target = old.edge_index
    assert float((old.y[source] == old.y[target]).float().mean()) == pytest.approx(0.305, abs=5e-4)
    assert datasets.default_rates(old.name) == datasets.default_rates("cornell")
    assert min(counts(split(old, "geom-gcn", 0))) > 0


def test_a_failed_download_names_what_is_missing_and_leaves_nothing_that_counts_as_data(tmp_path, monkeypatch):
    def offline(self):
        raise OSError("name or service not known")

    monkeypatch.setattr("torch_geometric.datasets.WebKB.download", offline)
    monkeypatch.setenv("PLUFG_CACHE", str(tmp_path / "cache"))
    words = r"no texas in .*root.*downloading it failed: name or service.*ROOT/WebKB/texas/raw"
    (tmp_path / "root").mkdir()
    for _ in range(2):
        with pytest.raises(OSError, match=words):
            load("texas", tmp_path / "root")
    assert (tmp_path / "root" / "WebKB" / "texas" / "raw").is_dir()
    assert not (tmp_path / "cache").exists()


def test_splits_of_geom_gcn_that_are_missing_are_named(labelled):
    labelled.name = "cora"
    with pytest.raises(ValueError, match=r"cora_split_0\.6_0\.2_0\.npz .*Planetoid_geom_gcn_splits"):
        split(labelled, "geom-gcn")


@needs_data
def test_a_downloaded_cora_has_the_splits_of_geom_gcn_too(tmp_path, monkeypatch):
    # What PyG would have downloaded; a file that it misses, it would ask the network for.
    monkeypatch.setattr("torch_geometric.datasets.Planetoid.download", None)
    monkeypatch.setenv("PLUFG_CACHE", str(tmp_path))
    monkeypatch.delenv("PLUFG_DATA", raising=False)
    home = tmp_path / "data" / "Planetoid" / "Cora"
    for folder, more in ((home / "raw", ()), (home / "geom-gcn" / "raw", DATA.glob("Planetoid_geom_gcn_splits/cora*"))):
        folder.mkdir(parents=True)
        for path in (*DATA.glob("Planetoid/Cora/raw/*"), *more):
            (folder / path.name).symlink_to(path)
    downloaded, given = load("cora"), load("cora", DATA)
    for seed in (0, 9):
        for mine, expected in zip(split(downloaded, "geom-gcn", seed), split(given, "geom-gcn", seed), strict=True):
            assert torch.equal(mine, expected)
    assert torch.equal(split(downloaded, "public").train, split(given, "public").train)


def test_old_cornell_is_downloaded_from_before_its_correction(tmp_path, monkeypatch):
    asked = []

    def refuse(url, *_):
        asked.append(url)
        raise OSError("no network")

    monkeypatch.delenv("PLUFG_DATA", raising=False)
    monkeypatch.setattr("torch_geometric.datasets.webkb.download_url", refuse)
    for name in ("cornell-old", "cornell"):
        with pytest.raises(OSError, match="no network"):
            load(name, tmp_path)
    old, new = asked
    assert "/f1fc0d14" in old
    assert old.endswith("/new_data/cornell/out1_node_feature_label.txt")
    assert old.rsplit("/new_data")[1] == new.rsplit("/new_data")[1]
    assert old != new


@needs_data
def test_loading_writes_nothing_into_the_root_and_reads_the_cache_again(monkeypatch):
    before = sorted(path for path in (DATA / "WebKB").rglob("*"))
    first = load("texas", DATA)
    monkeypatch.setattr("torch_geometric.datasets.WebKB.process", lambda self: pytest.fail("processed twice"))
    again = load("Texas", DATA)
    assert torch.equal(first.x, again.x)
    assert sorted(path for path in (DATA / "WebKB").rglob("*")) == before


@needs_data
def test_root_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("PLUFG_DATA", str(DATA))
    assert load("cornell").num_nodes == 183


@needs_data
def test_released_split_of_texas_is_the_easy_one_the_paper_used():
    graph = load("texas", DATA)
    with pytest.warns(UserWarning, match=r"classes 1, 2 in no mask of 'released' \(19 nodes\)"):
        masks = split(graph, "released")
    assert counts(masks) == [63, 21, 80]
    assert majority_accuracy(graph.y, masks.test) == pytest.approx(73 / 80)


@needs_data
def test_released_split_of_cora_drops_no_class():
    graph = load("cora", DATA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        masks = split(graph, "released")
    quotas = int(2708 / 7 * 0.2), int(2708 / 7 * 0.1)
    assert counts(masks) == [7 * quotas[0], 7 * quotas[1], 2708 - 7 * sum(quotas)]


@needs_data
def test_transforms_keep_masks_and_nodes_together():
    whole, part = (
        load("citeseer", DATA),
        load("citeseer", DATA, largest_component=True, normalize_features=True),
    )
    assert part.num_nodes < whole.num_nodes
    assert part.train_mask.shape == part.y.shape
    assert part.geom_gcn_test_mask.shape == (part.num_nodes, 10)
    # A node of CiteSeer may have no words at all.
    sums = part.x.sum(1)
    assert torch.all(torch.isclose(sums, torch.ones(())) | (sums == 0))


def test_largest_component_goes_along_edges_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    # A directed path of four nodes, and two nodes that point at each other.
    edges = torch.tensor([[0, 1, 2, 4, 5], [1, 2, 3, 5, 4]])
    graph = Data(x=torch.arange(6.0).view(6, 1), edge_index=edges, y=torch.arange(6))
    monkeypatch.setattr(datasets, "_read", lambda *_: graph)
    part = load("texas", largest_component=True)
    assert part.y.tolist() == [0, 1, 2, 3]
    assert part.edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]


def test_self_loops_are_added_where_there_are_none(tmp_path):
    root = write_webkb(tmp_path, ["texas"])
    plain, looped = load("texas", root), load("texas", root, self_loops=True)
    assert looped.has_self_loops()
    loops = looped.edge_index[0][looped.edge_index[0] == looped.edge_index[1]]
    assert sorted(loops.tolist()) == list(range(plain.num_nodes))
    others = [graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]].T.tolist() for graph in (plain, looped)]
    assert sorted(others[0]) == sorted(others[1])


def test_features_are_flipped_before_they_are_scaled(tmp_path):
    root = write_webkb(tmp_path, ["texas"])
    wanted = ((0.0, 1), (0.3, 1), (0.3, 2))
    clean, noisy, other = (load("texas", root, noise=rate, noise_seed=seed) for rate, seed in wanted)
    assert set(noisy.x.unique().tolist()) == {0.0, 1.0}
    assert 0.15 < float((noisy.x != clean.x).float().mean()) < 0.45
    assert not torch.equal(noisy.x, other.x)
    scaled = load("texas", root, noise=0.3, noise_seed=1, normalize_features=True).x
    torch.testing.assert_close(scaled, noisy.x / noisy.x.sum(1, keepdim=True).clamp(min=1))
