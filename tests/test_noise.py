"""Feature noise."""

import pytest
import torch

from plufg_fast.noise import flip_features


def test_the_share_of_flips_is_that_of_the_rate_for_zeros_and_for_ones():
    x = (torch.rand(500, 400) < 0.3).float()
    flipped = flip_features(x, 0.2, seed=1) != x
    for value in (0, 1):
        count = int((x == value).sum())
        # Five standard deviations of independent flips.
        assert float(flipped[x == value].float().mean()) == pytest.approx(0.2, abs=5 * (0.16 / count) ** 0.5)


def test_flipped_features_are_binary_and_follow_the_seed():
    x = (torch.rand(50, 40) < 0.3).float()
    a, b, c = (flip_features(x, 0.5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert set(a.unique().tolist()) == {0.0, 1.0}


def test_all_or_nothing():
    x = (torch.rand(50, 40) < 0.3).float()
    assert torch.equal(flip_features(x, 0.0), x)
    assert torch.equal(flip_features(x, 1.0), 1 - x)


def test_the_input_and_the_global_random_state_stay_as_they_are():
    x = torch.zeros(10, 10)
    before = torch.get_rng_state()
    flip_features(x, 0.5)
    assert torch.equal(torch.get_rng_state(), before)
    assert not x.any()


@pytest.mark.parametrize(
    ("x", "rate", "words"),
    [(torch.zeros(2, 2), 1.5, "rate in .0, 1., got 1.5"), (torch.full((2, 2), 0.5), 0.1, "zeros and ones")],
)
def test_what_cannot_be_flipped_is_refused(x, rate, words):
    with pytest.raises(ValueError, match=f"flip_features: expected .*{words}"):
        flip_features(x, rate)
