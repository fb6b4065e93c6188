"""The examples learn what they claim to."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch

FOLDER = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(request):
    spec = importlib.util.spec_from_file_location(request.param, FOLDER / f"{request.param}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["graph_classification"], indirect=True)
def test_graphs_are_classified_better_than_by_chance(example):
    # Of 80 graphs 60 right by chance: less than once in 100,000.
    assert example.train(epochs=5) >= 0.75


@pytest.mark.parametrize("example", ["graph_classification"], indirect=True)
def test_a_graph_in_a_batch_gives_what_it_gives_alone(example):
    graphs = example.make_graphs(5)
    model = example.GraphClassifier(4, 8, 2).double()
    for graph in graphs:
        graph.x = graph.x.double()
    both = [Batch.from_data_list(graphs), *(Batch.from_data_list([graph]) for graph in graphs)]
    together, *alone = (model(batch.x, batch.edge_index, batch.batch) for batch in both)
    torch.testing.assert_close(together, torch.cat(alone))


@pytest.mark.parametrize("example", ["graph_classification"], indirect=True)
def test_the_mean_over_all_nodes_does_not_tell_the_classes(example):
    graphs = example.make_graphs(400, noise=0.0)
    assert all(float(graph.x.mean().abs()) < 1e-6 for graph in graphs)


@pytest.mark.parametrize("example", ["link_prediction"], indirect=True)
def test_hidden_edges_are_told_from_other_pairs(example):
    # 0.55 before it has learned anything.
    found = example.train(epochs=40)
    assert found > 0.7
    assert example.train(epochs=40) == found


@pytest.mark.parametrize("example", ["link_prediction"], indirect=True)
def test_the_area_under_the_curve_is_that_of_its_definition(example):
    area = example.area_under_curve(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 1.0, 0.0, 0.0]))
    assert area == pytest.approx((4 + 2 + 0.5) / 8)
