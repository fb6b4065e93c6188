"""Correcting predictions for class shares: right where the answer is known, blind to test labels."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize

from plufg_fast.data import Split
from plufg_fast.label_shift import Corrected, correct, estimate_shares, expected_accuracy, sharpness

MEANS = torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]], dtype=torch.float64)
EVEN = torch.full((3,), 1 / 3, dtype=torch.float64)
SHARES = torch.tensor([0.85, 0.1, 0.05], dtype=torch.float64)


def draw(shares, count, seed):
    """Points of three normal distributions, and their classes."""
    rng = torch.Generator().manual_seed(seed)
    label = torch.multinomial(shares, count, replacement=True, generator=rng)
    return MEANS[label] + torch.randn(count, 2, dtype=torch.float64, generator=rng), label


def posterior(x, shares):
    """What a perfect network says that learned from classes of these shares."""
    return F.log_softmax(-torch.cdist(x, MEANS).square() / 2 + shares.log(), dim=-1)


def mixed(count=4000):
    """Training and validation nodes of even classes, test nodes of others."""
    known, known_label = draw(EVEN, count, 0)
    x, label = draw(SHARES, count, 1)
    part = torch.arange(2 * count) * 4 // (2 * count)
    return torch.cat((known, x)), torch.cat((known_label, label)), Split(part == 0, part == 1, part >= 2)


def accuracy(log_prob, label, mask):
    return float((log_prob.argmax(-1) == label)[mask].double().mean())


def test_the_shares_of_a_known_mixture_are_found():
    x, _ = draw(SHARES, 20_000, 0)
    found = estimate_shares(posterior(x, EVEN), EVEN)
    torch.testing.assert_close(found, SHARES, atol=0.01, rtol=0)
    assert float(found.sum()) == pytest.approx(1.0)


def test_the_shares_are_the_most_likely_ones():
    x, _ = draw(SHARES, 300, 0)
    learned = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    ratio = (posterior(x, learned).exp() / learned).numpy()
    found = estimate_shares(posterior(x, learned), learned)
    best = minimize(
        lambda shares: -np.log(ratio @ shares).mean(),
        EVEN.numpy(),
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1},
        tol=1e-12,
    )
    torch.testing.assert_close(found, torch.from_numpy(best.x), atol=1e-3, rtol=0)


def test_shares_like_those_of_training_change_no_answer():
    x, label = draw(EVEN, 20_000, 3)
    before = posterior(x, EVEN)
    part = torch.arange(20_000) % 3
    after, _ = correct(before, label, Split(part == 0, part == 1, part == 2))
    assert float((before.argmax(-1) == after.argmax(-1)).double().mean()) > 0.98


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_answers_are_as_good_as_with_the_true_shares_however_sure_of_itself_the_network(factor):
    x, label, split = mixed()
    said = F.log_softmax(factor * posterior(x, EVEN), dim=-1)
    best = accuracy(posterior(x, SHARES), label, split.test)
    assert accuracy(said, label, split.test) < best - 0.05, "the test needs a shift that hurts"
    corrected, shares = correct(said, label, split)
    torch.testing.assert_close(shares, SHARES, atol=0.03, rtol=0)
    assert accuracy(corrected, label, split.test) == pytest.approx(best, abs=0.005)
    torch.testing.assert_close(corrected.exp().sum(-1), torch.ones(len(x), dtype=torch.float64))
    assert sharpness(said[split.val], label[split.val]) == pytest.approx(1 / factor, rel=0.1)


def test_labels_of_test_nodes_are_never_read():
    x, label, split = mixed(400)
    other = torch.where(split.test, (label + 1) % 3, label)
    assert torch.equal(correct(posterior(x, EVEN), label, split)[0], correct(posterior(x, EVEN), other, split)[0])


def test_a_class_without_training_nodes_is_never_answered():
    x, label, split = mixed(400)
    said = torch.cat((posterior(x, EVEN), torch.zeros(len(x), 1, dtype=torch.float64)), dim=1)
    out, shares = correct(F.log_softmax(said, dim=-1), label, split)
    assert float(shares[3]) == 0.0
    assert (out[:, 3] == -torch.inf).all()
    torch.testing.assert_close(out[:, :3], correct(posterior(x, EVEN), label, split)[0])
    # Validation nodes of such a class cannot choose the sharpness.
    label[split.val.nonzero()[:5, 0]] = 3
    assert correct(F.log_softmax(said, dim=-1), label, split)[0].isfinite()[:, :3].all()


def test_certainty_and_a_class_that_nothing_speaks_for_stay_numbers():
    # Rounded to probabilities of exactly 0 and 1, as a large network gives them.
    said = torch.tensor([[0.0, -200.0], [0.0, -torch.inf], [-torch.inf, 0.0], [0.0, -300.0]])
    label = torch.tensor([0, 0, 1, 0])
    place = torch.arange(4)
    split = Split((place == 0) | (place == 2), place == 1, place == 3)
    out, _ = correct(said, label, split)
    assert not out.isnan().any()
    assert out.dtype == torch.float32
    assert out.argmax(-1).tolist() == [0, 0, 1, 0]
    assert sharpness(said[1:2], torch.tensor([1])) == 1.0, "nothing to choose by"


def test_validation_nodes_tell_what_to_expect_of_test_nodes():
    x, label, split = mixed()
    corrected = correct(posterior(x, EVEN), label, split)
    expected = expected_accuracy(corrected, label, split)
    assert expected == pytest.approx(accuracy(corrected.log_prob, label, split.test), abs=0.02)
    assert expected > accuracy(corrected.log_prob, label, split.val) + 0.1, "the test needs other shares"


def test_expected_accuracy_weighs_classes_and_not_nodes():
    # Validation nodes: 3 of 4 right in class 0, none of 1 in class 1, none at all of class 2.
    answer = torch.tensor([0, 0, 0, 1, 0, 2])
    label = torch.tensor([0, 0, 0, 0, 1, 2])
    split = Split(torch.zeros(6, dtype=torch.bool), torch.arange(6) < 5, torch.arange(6) == 5)
    corrected = Corrected(F.one_hot(answer, 3).double().log(), torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64))
    assert expected_accuracy(corrected, label, split) == pytest.approx(0.75 * 0.6 / 0.8)
