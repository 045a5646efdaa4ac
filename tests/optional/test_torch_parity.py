"""The converters against PyTorch itself; run by `make test-torch`."""

import numpy as np
import pytest
import torch
from support.arrays import coins, normal
from torch import nn

from keras_attention.layers import (
    DecoderBlock,
    EncoderBlock,
    MultiHeadAttention,
    weights,
)

B, T, S, D, N = 2, 5, 3, 16, 4


def close(actual, expected):
    expected = expected.detach().numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "widths", [{}, {"kdim": 6, "vdim": 7}, {"bias": False}], ids=str
)
def test_multi_head_attention(widths):
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(D, N, batch_first=True, **widths)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    query, key, value = normal(
        (B, T, D),
        (B, S, widths.get("kdim", D)),
        (B, S, widths.get("vdim", D)),
    )
    hidden = ~coins(B, S)
    hidden[:, 0] = False
    ours = MultiHeadAttention(N, D // N, use_bias=widths.get("bias", True))
    weights.load_torch(ours, theirs.state_dict())
    output, scores = ours(
        query, value, key, value_mask=~hidden, return_attention_scores=True
    )
    expected, their_scores = theirs(
        *map(torch.tensor, (query, key, value)),
        key_padding_mask=torch.tensor(hidden),
        average_attn_weights=False,
    )
    close(output, expected)
    close(scores, their_scores)

    again = nn.MultiheadAttention(D, N, batch_first=True, **widths)
    again.load_state_dict(
        {k: torch.tensor(v) for k, v in weights.dump_torch(ours).items()}
    )
    close(
        output,
        again(
            *map(torch.tensor, (query, key, value)),
            key_padding_mask=torch.tensor(hidden),
        )[0],
    )


@pytest.mark.parametrize("first", [False, True])
def test_encoder_layer(first):
    torch.manual_seed(3)
    theirs = nn.TransformerEncoderLayer(
        D, N, 11, batch_first=True, norm_first=first, activation="gelu"
    ).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours = EncoderBlock(N, 11, activation="gelu", normalize_first=first)
    weights.load_torch(ours, theirs.state_dict())
    x = normal((B, T, D))
    close(ours(x), theirs(torch.tensor(x)))
    theirs.load_state_dict(
        {k: torch.tensor(v) for k, v in weights.dump_torch(ours).items()}
    )


@pytest.mark.parametrize("first", [False, True])
def test_decoder_layer(first):
    torch.manual_seed(3)
    theirs = nn.TransformerDecoderLayer(
        D, N, 11, batch_first=True, norm_first=first
    ).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours = DecoderBlock(N, 11, normalize_first=first)
    weights.load_torch(ours, theirs.state_dict())
    x, memory = normal((B, T, D), (B, S, D))
    future = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    expected = theirs(torch.tensor(x), torch.tensor(memory), tgt_mask=future)
    close(ours(x, memory), expected)
    theirs.load_state_dict(
        {k: torch.tensor(v) for k, v in weights.dump_torch(ours).items()}
    )


def test_half_precision_tensors_are_read():
    state = nn.MultiheadAttention(D, N, dtype=torch.bfloat16).state_dict()
    ours = MultiHeadAttention(N, D // N)
    weights.load_torch(ours, state)
    close(ours.output_dense.bias, state["out_proj.bias"].float())
