"""Predicting nodes whose classes have other shares than those of the nodes one learned from.

A split that draws as many training nodes of every class leaves test nodes of which most are of the large classes. A
network then answers small classes too often. What is wrong with its probabilities is one factor per class, the ratio
of the two shares (Bayes' rule), and the shares of the nodes to be predicted can be estimated from the predictions
themselves, without a label of theirs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .data import Split

_STEPS: Final = 300
_CLOSE: Final = 1e-5
"""Shares that change by less in a step are found."""
_SHARPEST: Final = 10.0
_HALVINGS: Final = 20


class Corrected(NamedTuple):
    """Predictions for other class shares than those of training."""

    log_prob: Tensor  # [N, C]
    shares: Tensor  # [C], the estimate for the test nodes


def correct(log_prob: Tensor, label: Tensor, split: Split) -> Corrected:
    """Predictions for the class shares of the test nodes, which are estimated without their labels.

    The probabilities are first made as sharp as fits the validation nodes (:func:`sharpness`), since the estimate takes
    them at their word. A class without training nodes gets probability 0. Of a network that hardly tells classes
    apart, the estimate may be worse than no correction.

    Args:
        log_prob: What a network says, ``[N, C]``.
        label: The class of every node ``[N]``; of the test nodes it is not read.
        split: Which nodes were trained on, which choose the sharpness, and which are to be predicted.
    """
    learned = torch.bincount(label[split.train], minlength=log_prob.shape[1]).double()
    learned /= learned.sum()
    # In double precision a share of one node in a million does not get lost in a sum.
    scores = log_prob.double().masked_fill(learned == 0, -torch.inf)
    scores = F.log_softmax(sharpness(scores[split.val], label[split.val]) * scores, dim=-1)
    shares = estimate_shares(scores[split.test], learned)
    ratio = torch.where(learned > 0, shares / learned, 0)
    return Corrected(F.log_softmax(scores + ratio.log(), dim=-1).to(log_prob.dtype), shares)


def expected_accuracy(corrected: Corrected, label: Tensor, split: Split) -> float:
    """What the validation nodes let expect of corrected predictions on the test nodes.

    It is the accuracy on the validation nodes of a class, weighted by the class' share among the test nodes. Classes
    that no validation node is of do not count.
    """
    truth = label[split.val]
    right = (corrected.log_prob[split.val].argmax(dim=-1) == truth).double()
    count = torch.bincount(truth, minlength=len(corrected.shares))
    weight = corrected.shares * (count > 0)
    recall = torch.bincount(truth, right, minlength=len(count)) / count.clamp_min(1)
    return float((weight * recall).sum() / weight.sum())


def estimate_shares(log_prob: Tensor, learned: Tensor) -> Tensor:
    """The most likely class shares ``[C]`` of nodes, given what a network that learned from others says of them.

    Expectation maximisation, which climbs to the maximum of a concave likelihood (`Saerens, Latinne and Decaestecker,
    2002 <https://doi.org/10.1162/089976602753284446>`_): correct the probabilities for the shares, take their mean for
    the shares, and so on.

    Args:
        log_prob: Log-probabilities of the nodes ``[N, C]``.
        learned: Class shares of the nodes that the network learned from ``[C]``.
    """
    # How likely a node is in a class, up to a factor of the node's own.
    likely = torch.where(learned > 0, log_prob.exp() / learned, 0)  # [N, C]
    shares = learned
    for _ in range(_STEPS):
        before = shares
        shares = before * (likely.T @ (likely @ before).reciprocal()) / len(likely)
        if float((shares - before).abs().max()) < _CLOSE:
            break
    return shares


def sharpness(log_prob: Tensor, label: Tensor) -> float:
    """The factor on log-probabilities ``[N, C]`` that makes labels ``[N]`` most likely, from 1/10 to 10.

    It is the inverse of a temperature (`Guo et al., 2017 <https://arxiv.org/abs/1706.04599>`_). Labels of classes that
    have no probability are left out.
    """
    found = log_prob.gather(1, label[:, None])[:, 0]
    known = found.isfinite()
    log_prob, found = log_prob[known], found[known]
    if not len(found):
        return 1.0
    low, high = 1 / _SHARPEST, _SHARPEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        weight = F.softmax(middle * log_prob, dim=-1)
        # The slope of the log-likelihood, which is concave: a mean that counts no class of probability 0.
        slope = (found - (weight * log_prob.masked_fill(weight == 0, 0)).sum(dim=-1)).mean()
        low, high = (middle, high) if slope > 0 else (low, middle)
    return (low + high) / 2
