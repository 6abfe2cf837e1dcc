import pytest
import torch

from softmax_rnn.errors import InputError
from softmax_rnn.model.positions import check_positions, key_mask_of, positions_of


def test_a_mask_may_cover_the_past():
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    assert key_mask_of(mask, 2, 1, 2).tolist() == [[True], [True]]
    assert key_mask_of(mask[:, :1], 2, 1, 2).tolist() == [[False], [True]]
    assert key_mask_of(None, 2, 1, 2) is None


@pytest.mark.parametrize("shape", [(2, 4), (1, 3), (2, 1, 3, 3)])
def test_other_masks_are_refused(shape):
    with pytest.raises(InputError, match="attention_mask: expected"):
        key_mask_of(torch.ones(shape), 2, 1, 2)


def test_real_positions_are_counted():
    mask = torch.tensor([[False, True, True], [True, True, True]])
    assert positions_of(2, 3, key_mask=mask).tolist() == [[0, 0, 1], [0, 1, 2]]
    assert positions_of(2, 1, lengths=torch.tensor([4, 7])).tolist() == [[4], [7]]
    assert positions_of(2, 3).tolist() == [[0, 1, 2]]
    ids = torch.tensor([[5, 5, 9], [3, 4, 4]])
    assert positions_of(2, 3, key_mask=mask, segment_ids=ids).tolist() == [[0, 0, 0], [0, 0, 1]]


def test_a_context_beyond_the_positions_names_both_numbers():
    check_positions(torch.tensor([[63]]), 64)
    check_positions(torch.tensor([[640]]), None)
    with pytest.raises(InputError, match=r"65 positions, but the model has 64 \(max_position_embeddings\)"):
        check_positions(torch.tensor([[64]]), 64)
