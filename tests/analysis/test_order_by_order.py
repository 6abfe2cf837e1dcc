"""One head cut after an order: weights are those of attention, and orders sum up to them."""

import pytest
import torch

from model.tiny import tiny_model
from softmax_rnn.analysis import order_by_order as cut
from softmax_rnn.analysis.methods import METHODS, nearest_order
from softmax_rnn.analysis.reading import Head, read
from softmax_rnn.errors import InputError


@pytest.fixture(scope="module")
def head():
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 9, 4, dtype=torch.float64)
    return Head(1.5 * q, k, v)


def literal_softmax(head):
    rows = []
    for i in range(len(head.q)):
        weights = [torch.exp(head.q[i] @ head.k[j]) for j in range(i + 1)]
        rows.append([float(w / sum(weights)) for w in weights] + [0.0] * (len(head.q) - i - 1))
    return torch.tensor(rows, dtype=torch.float64)


def test_softmax_weights_are_the_formula(head):
    torch.testing.assert_close(cut.softmax_weights(head), literal_softmax(head), atol=1e-12, rtol=0)


def test_taylor_weights_are_the_sum_of_terms_divided_by_the_row_sum(head):
    x = head.scores
    raw = sum(x**n / torch.exp(torch.lgamma(torch.tensor(n + 1.0, dtype=torch.float64))) for n in range(5)).tril()
    expected = raw / raw.sum(1, keepdim=True)
    torch.testing.assert_close(cut.cut_weights("taylor", 4, head), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("order", [4, 12])
def test_orders_sum_up_to_the_weights_of_attention(head, method, order):
    query = 7
    sums = cut.order_terms(method, order, head, query).sum(0)
    weights = cut.cut_weights(method, order, head)[query, : query + 1]
    torch.testing.assert_close(sums / sums.sum(), weights, atol=1e-10, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_many_orders_reach_softmax(head, method):
    terms = cut.order_terms(method, 40, head, 8)
    weights = cut.softmax_weights(head)[8]
    assert float((terms.sum(0) - weights).abs().max()) < 1e-6
    distances = cut.distance_by_order(terms, weights)
    assert distances[-1] < 1e-6 < distances[0]
    assert float(cut.output_error(method, 40, head).max()) < 1e-6


def test_order_zero_is_the_mean(head):
    weights = cut.cut_weights("taylor", 0, head)
    torch.testing.assert_close(weights[4, :5], torch.full((5,), 0.2, dtype=torch.float64))
    assert cut.order_terms("taylor", 0, head, 4).shape == (1, 5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda head: nearest_order("taylor", 41), "order: expected 0 to 40, got 41"),
        (lambda head: nearest_order("tailor", 4), "did you mean 'taylor'"),
        (lambda head: cut.order_terms("taylor", 4, head, 9), "query: expected 0 to 8, got 9"),
    ],
)
def test_wrong_arguments(head, call, said):
    with pytest.raises(InputError, match=said):
        call(head)


def test_a_reading_has_every_head_of_the_model():
    model = tiny_model()
    reading = read(model, [1, 5, 2, 7])
    assert (reading.layers, reading.heads, reading.time) == (2, 4, 4)
    first, second = reading.head(0, 0), reading.head(0, 1)
    assert torch.equal(first.k, second.k)  # two query heads share a key head
    assert not torch.equal(first.q, second.q)
    with pytest.raises(InputError, match="layer: expected 0 to 1, got 2"):
        reading.head(2, 0)
    with pytest.raises(InputError, match="head: expected 0 to 3, got 4"):
        reading.head(0, 4)
