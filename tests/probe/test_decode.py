"""The workload on real torch."""

import pytest
import torch

from solpi_exporter.probe.decode import DecodeStack, DecodeStep
from solpi_exporter.probe.shape import SHAPES, Shape, smallest

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


def test_a_token_of_the_vocabulary_for_each_sequence(stack: DecodeStack) -> None:
    """The step yields the arg max of its logits."""
    tokens = decode(DecodeStep(stack, 3))

    assert len(tokens) == 3
    assert all(0 <= token < SHAPE.vocabulary for token in tokens)


def test_the_kv_cache_of_the_last_slot_is_written(stack: DecodeStack) -> None:
    """Keys and values are appended for each sequence of the batch, in every layer, and nowhere else."""
    before = stack.cache.clone()

    decode(DecodeStep(stack, 2))

    changed = (stack.cache != before).any(-1).any(-1)
    assert changed[:, :, :2, -1].all()
    assert not changed[:, :, :2, :-1].any()
    assert not changed[:, :, 2].any()


def test_grouped_queries_attend_as_repeated_heads_would(stack: DecodeStack) -> None:
    """A group's queries standing in the query length is grouped-query attention, not something like it."""
    batch, group = 3, SHAPE.heads // SHAPE.kv_heads
    query = torch.randn(batch, SHAPE.heads, 1, SHAPE.head_size)
    keys, values = (part.transpose(1, 2) for part in stack.cache[0])
    attention = torch.nn.functional.scaled_dot_product_attention

    grouped = attention(query.view(batch, SHAPE.kv_heads, group, SHAPE.head_size), keys, values)
    repeated = attention(query, keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1))

    assert torch.allclose(grouped.reshape(batch, -1), repeated.reshape(batch, -1), atol=1e-6)


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


def test_a_step_is_the_same_every_time(stack: DecodeStack) -> None:
    """Seeded weights: two stacks decode alike, so that figures compare work with work."""
    other = DecodeStack(SHAPE, 3, CPU, torch.float32)

    assert torch.equal(stack.qkv, other.qkv)


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
