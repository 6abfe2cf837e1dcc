import pytest
import torch
import torch.nn.functional as F

from softmax_rnn.model.conv import ShortConv


def conv_of(width, **options):
    torch.manual_seed(width)
    return ShortConv(6, width, **options)


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_causal_depthwise_convolution(width, bias):
    conv, x = conv_of(width, activation="silu", bias=bias), torch.randn(2, 7, 6)
    padded = F.pad(x.mT, (width - 1, 0))
    expected = F.silu(F.conv1d(padded, conv.weight[:, None], conv.bias, groups=6)).mT
    torch.testing.assert_close(conv(x)[0], expected)


@pytest.mark.parametrize("time", [1, 2, 3, 6])
def test_pieces_continue_from_the_tail(time):
    conv, x = conv_of(4), torch.randn(2, 7, 6)
    first, tail = conv(x[:, :time])
    rest, tail = conv(x[:, time:], tail=tail)
    torch.testing.assert_close(torch.cat([first, rest], 1), conv(x)[0])
    torch.testing.assert_close(tail, x[:, -3:])


def test_documents_do_not_see_each_other():
    conv, x = conv_of(4, bias=True), torch.randn(1, 7, 6)
    packed = conv(x, segment_ids=torch.tensor([[0, 0, 0, 1, 2, 2, 2]]))[0]
    alone = torch.cat([conv(x[:, s])[0] for s in (slice(0, 3), slice(3, 4), slice(4, 7))], 1)
    torch.testing.assert_close(packed, alone)


def test_padding_on_the_left_is_nothing():
    conv, x = conv_of(3), torch.randn(1, 5, 6)
    padded = torch.cat([torch.full((1, 2, 6), float("nan")), x], 1)
    mask = torch.tensor([[False, False, True, True, True, True, True]])
    torch.testing.assert_close(conv(padded, key_mask=mask)[0][:, 2:], conv(x)[0])


def test_filters_start_at_a_size_that_keeps_the_signal():
    weight = ShortConv(4000, 4).weight.detach()
    assert float(weight.abs().max()) <= 0.5 and abs(float(weight.std()) - 0.5 / 3**0.5) < 0.01
