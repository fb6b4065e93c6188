"""Correcting predictions for class shares: right where the answer is known, blind to test labels."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize

from plufg_fast.data import Split
from plufg_fast.label_shift import calibrate, correct, estimate_shares

MEANS = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
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


def mixed(count=40_000, learned=EVEN):
    """Training and validation nodes of even or other classes, test nodes of yet others."""
    known, known_label = draw(learned, count, 0)
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
@pytest.mark.parametrize("bias", [[0.0, 0.0, 0.0], [-2.0, 1.0, 1.0]])
def test_answers_are_as_good_as_with_the_true_shares_however_sure_of_itself_the_network(factor, bias):
    x, label, split = mixed()
    said = F.log_softmax(factor * posterior(x, EVEN) + torch.tensor(bias), dim=-1)
    best = accuracy(posterior(x, SHARES), label, split.test)
    assert accuracy(said, label, split.test) < best - 0.03, "the test needs a shift that hurts"
    corrected, shares = correct(said, label, split)
    torch.testing.assert_close(shares, SHARES, atol=0.01, rtol=0)
    assert accuracy(corrected, label, split.test) == pytest.approx(best, abs=0.003)
    torch.testing.assert_close(corrected.exp().sum(-1), torch.ones(len(x), dtype=torch.float64))


def test_uneven_classes_in_training_are_taken_into_account():
    learned = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)
    x, label, split = mixed(learned=learned)
    corrected, shares = correct(posterior(x, learned), label, split)
    torch.testing.assert_close(shares, SHARES, atol=0.01, rtol=0)
    best = accuracy(posterior(x, SHARES), label, split.test)
    assert accuracy(corrected, label, split.test) == pytest.approx(best, abs=0.003)


def test_calibration_is_the_most_likely_one():
    x, label = draw(EVEN, 60, 5)
    said = F.log_softmax(4 * posterior(x, EVEN) + torch.tensor([1.0, 0.0, -1.0]), dim=-1)

    def loss(at):
        scores = at[0] * said + at[1:]
        return F.cross_entropy(scores, label, reduction="sum") + ((at[0] - 1) ** 2 + at[1:].square().sum()) / 2

    best = minimize(lambda at: float(loss(torch.from_numpy(at))), [1.0, 0.0, 0.0, 0.0], tol=1e-12).x
    expected = F.log_softmax(best[0] * said + torch.from_numpy(best[1:]), dim=-1)
    torch.testing.assert_close(calibrate(said, said, label), expected, atol=1e-4, rtol=1e-4)


def test_calibration_by_a_few_nodes_that_are_all_right_stays_moderate():
    said = F.log_softmax(torch.eye(3, dtype=torch.float64).repeat(7, 1), dim=-1)
    sharper = calibrate(said, said, torch.arange(3).repeat(7))
    assert (sharper.max(dim=1).values > said.max(dim=1).values).all()
    assert float(sharper.exp().max()) < 0.99


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


def test_certainty_stays_a_number():
    said = torch.tensor([[0.0, -200.0], [0.0, -torch.inf], [-torch.inf, 0.0], [0.0, -1e4]])
    label = torch.tensor([0, 0, 1, 0])
    place = torch.arange(4)
    split = Split((place == 0) | (place == 2), place == 1, place == 3)
    out, shares = correct(said, label, split)
    assert not out.isnan().any()
    assert out.dtype == torch.float32
    assert out.argmax(-1)[[0, 1, 3]].tolist() == [0, 0, 0]
    torch.testing.assert_close(shares, torch.tensor([1.0, 0.0], dtype=torch.float64), atol=1e-3, rtol=0)


def test_a_learned_class_without_validation_nodes_stays_a_number():
    x, label, split = mixed(400)
    split = split._replace(val=split.val & (label != 2))
    out, shares = correct(posterior(x, EVEN), label, split)
    assert out.isfinite().all()
    assert float(shares.sum()) == pytest.approx(1.0)
    assert float(shares.min()) > 0


def test_no_validation_node_of_a_learned_class_leaves_the_probabilities_uncalibrated():
    x, label, split = mixed(400)
    label[split.val] = 3
    said = F.log_softmax(torch.cat((posterior(x, EVEN), torch.zeros(len(x), 1)), dim=1), dim=-1)
    shares = estimate_shares(posterior(x, EVEN)[split.test], torch.bincount(label[split.train]).double() / 200)
    torch.testing.assert_close(correct(said, label, split).shares[:3], shares, atol=1e-4, rtol=0)


def test_without_test_nodes_the_shares_are_those_of_validation():
    x, label, split = mixed(400)
    split = split._replace(test=torch.zeros_like(split.test))
    out, shares = correct(posterior(x, EVEN).requires_grad_(), label, split)
    assert not out.isnan().any()
    torch.testing.assert_close(shares, torch.bincount(label[split.val]).double() / 200, atol=0.01, rtol=0)
    assert not out.requires_grad
