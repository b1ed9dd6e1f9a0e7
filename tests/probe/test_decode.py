"""The workload on real torch."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from solpi_exporter.probe.decode import DecodeStack, DecodeStep
from solpi_exporter.probe.shape import KV_BLOCK, SHAPES, Shape, smallest

CPU = torch.device("cpu")
SHAPE = Shape("test", 16, 4, 2, 4, 32, 50, layers=2, context=8)


@pytest.fixture
def stack() -> DecodeStack:
    return DecodeStack(SHAPE, 3, CPU, torch.float32)


def decode(step: DecodeStep, *, attended: int | None = None) -> list[int]:
    with torch.inference_mode():
        step.prepare()
        step.forward(attended=attended)
    return step.tokens.tolist()


def by_the_book(stack: DecodeStack, tokens: torch.Tensor, attended: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode a token for each sequence as the model is defined: loops, repeated heads, nothing fused.

    Returns the logits and the cache as it is afterwards.
    """
    shape, cache = stack.shape, stack.cache.clone()
    group, queries, kv = shape.heads // shape.kv_heads, shape.heads * shape.head_size, shape.kv_heads * shape.head_size

    def normed(x: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean() + torch.finfo(x.dtype).eps).sqrt() * stack.norm

    def rotated(x: torch.Tensor) -> torch.Tensor:
        half = shape.head_size // 2
        return x * stack.cosine + torch.cat((-x[half:], x[:half])) * stack.sine

    logits = []
    for row, token in enumerate(tokens):
        x = stack.embedding[token]
        for layer in range(shape.layers):
            keys, values = cache[layer, :, row]
            qkv = normed(x) @ stack.qkv
            for head in range(shape.kv_heads):
                at = queries + head * shape.head_size
                keys[-1, head] = rotated(qkv[at : at + shape.head_size])
                values[-1, head] = qkv[at + kv : at + kv + shape.head_size]
            heads = []
            for head in range(shape.heads):
                query = rotated(qkv[head * shape.head_size : (head + 1) * shape.head_size])
                weights = (keys[:attended, head // group] @ query / shape.head_size**0.5).softmax(0)
                heads.append(weights @ values[:attended, head // group])
            x = x + torch.cat(heads) @ stack.output
            gate, up = (normed(x) @ stack.gate_up).chunk(2)
            x = x + (gate * torch.sigmoid(gate) * up) @ stack.down
        logits.append(normed(x) @ stack.head)
    return torch.stack(logits), cache


@pytest.mark.parametrize("attended", [SHAPE.context, 4])
def test_a_step_is_a_llama_shaped_decoder(stack: DecodeStack, attended: int) -> None:
    """Its tokens and its cache are those of the model by the book: every part is there and does what it should."""
    for weights in (stack.qkv, stack.output, stack.gate_up, stack.down, stack.head, stack.embedding):
        weights *= 30  # as drawn they are so small that no part would show in the result
    step = DecodeStep(stack, 3)
    step.tokens.copy_(torch.tensor([3, 17, 42]))
    logits, cache = by_the_book(stack, step.tokens, attended)

    tokens = decode(step, attended=attended)

    assert tokens == logits.argmax(-1).tolist()
    assert torch.allclose(stack.cache, cache, atol=1e-4)


def test_the_stand_in_copies_block_table_and_slots() -> None:
    """What an engine hands to the device before each step: every block of every sequence, and where the token goes."""
    step = DecodeStep(DecodeStack(replace(SHAPE, context=3 * KV_BLOCK), 2, CPU, torch.float32), 2)
    step._host_table[:, -1] = 99

    step.prepare()

    assert step._slots.tolist() == [47, 95]
    assert step._table.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_kv_cache_of_the_last_slot_is_written(stack: DecodeStack) -> None:
    """Keys and values are appended for each sequence of the batch, in every layer, and nowhere else."""
    before = stack.cache.clone()

    decode(DecodeStep(stack, 2))

    changed = (stack.cache != before).any(-1).any(-1)
    assert changed[:, :, :2, -1].all()
    assert not changed[:, :, :2, :-1].any()
    assert not changed[:, :, 2].any()


def test_the_ablation_attends_to_fewer_tokens(stack: DecodeStack) -> None:
    """What lies outside the block that is kept has no influence; inside it has."""
    step = DecodeStep(stack, 1)

    def hidden(attended: int) -> torch.Tensor:
        with torch.inference_mode():
            step.prepare()
            return step._attention(torch.ones(1, SHAPE.hidden), 0, attended)

    cut, whole = hidden(4), hidden(8)
    stack.cache[:, :, :, 4:-1] += 1.0

    assert torch.equal(hidden(4), cut)
    assert not torch.equal(hidden(8), whole)


def test_two_stacks_decode_alike(stack: DecodeStack) -> None:
    """Weights are seeded, so that figures compare work with the same work."""
    other = DecodeStack(SHAPE, 3, CPU, torch.float32)

    assert decode(DecodeStep(stack, 3)) == decode(DecodeStep(other, 3))
    assert torch.equal(stack.cache, other.cache)


@pytest.mark.parametrize("batch", [1, 8, 32])
def test_the_smallest_shape_makes_all_calls(batch: int) -> None:
    """The same step runs at hidden 2, one head, one slot, vocabulary 2."""
    assert len(decode(DecodeStep(DecodeStack(smallest(SHAPES["small"]), batch, CPU, torch.float32), batch))) == batch


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_shapes_are_consistent(shape: Shape) -> None:
    """Heads divide into groups, head size is even for the rotary embedding, heads make up the hidden size."""
    assert shape.heads % shape.kv_heads == 0
    assert shape.head_size % 2 == 0
    assert shape.heads * shape.head_size == shape.hidden
    assert shape.context >= 512


@pytest.mark.parametrize("shape", [SHAPES["8b"], SHAPES["1b"]], ids=["8b", "1b"])
def test_gpu_layers_exceed_the_l2(shape: Shape) -> None:
    """One layer in bfloat16 is larger than 60 MB, the H200's L2, so that running it again reads memory again."""
    kv = shape.kv_heads * shape.head_size
    parameters = shape.hidden * (2 * shape.hidden + 2 * kv + 3 * shape.intermediate)

    assert 2 * parameters > 60e6


def test_fewer_layers_are_the_first_ones(stack: DecodeStack) -> None:
    """One layer of two appends to the first's cache alone."""
    before = stack.cache.clone()
    with torch.inference_mode():
        step = DecodeStep(stack, 3)
        step.prepare()
        step.forward(layers=1)

    assert not torch.equal(stack.cache[0], before[0])
    assert torch.equal(stack.cache[1], before[1])


def test_the_first_launch_is_told(stack: DecodeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the embedding, before any layer."""
    order: list[str] = []
    step = DecodeStep(stack, 3)
    attention = DecodeStep._attention

    def attend(*args: Any) -> torch.Tensor:
        order.append("layer")
        return attention(*args)

    monkeypatch.setattr(DecodeStep, "_attention", attend)

    with torch.inference_mode():
        step.prepare()
        step.forward(started=lambda: order.append("started"))

    assert order == ["started", "layer", "layer"]
