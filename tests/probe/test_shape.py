"""The presets, and what a step has to move."""

import pytest
import torch

from solpi_exporter.probe.decode import DecodeStack
from solpi_exporter.probe.shape import SHAPES, Depths, depths_of, shape_of


@pytest.mark.parametrize("layers", [1, 3])
def test_what_a_step_moves_is_what_the_stack_holds(layers: int) -> None:
    """A layer's weights once for each layer, the head's, and a batch's cache; of the embedding only rows are read."""
    shape = shape_of("small", context=32, layers=layers)
    stack = DecodeStack(shape, 2, torch.device("cpu"), torch.float32)

    a_layer = sum(one.numel() for one in (stack.qkv, stack.output, stack.gate_up, stack.down))

    assert shape.layer_parameters == a_layer
    assert shape.moved_elements(2) == layers * a_layer + stack.head.numel() + stack.cache.numel()


def test_a_preset_can_be_deeper_or_longer() -> None:
    """What is not given stays as it was."""
    assert shape_of("8b") == SHAPES["8b"]
    changed = shape_of("8b", context=4096, layers=8)
    assert (changed.context, changed.layers, changed.hidden, changed.full_layers) == (4096, 8, 4096, 32)


@pytest.mark.parametrize(("name", "billions"), [("8b", 7.0), ("1b", 0.97)])
def test_a_preset_is_shaped_like_its_model(name: str, billions: float) -> None:
    """All its layers together: Llama 3.1 8B has 6.98 billion parameters in them, Llama 3.2 1B 0.97."""
    shape = SHAPES[name]
    assert shape.full_layers is not None

    assert shape.full_layers * shape.layer_parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_two_depths_need_two_layers_and_a_model() -> None:
    """The second depth is one layer: the further apart, the less an error weighs in the whole model."""
    assert depths_of(shape_of("8b")) == Depths(layers=4, shallow=1, full=32)
    assert depths_of(shape_of("8b", layers=1)) is None
    assert depths_of(shape_of("8b", layers=32)) is None
    assert depths_of(shape_of("small")) is None


def test_what_a_shape_holds_is_its_weights_and_its_cache() -> None:
    """One layer's weights, embedding and head, and a KV cache for each layer: 1.2 GB of the 8b shape at batch 32."""
    assert shape_of("8b").held_bytes(32) == 2 * (218_103_808 + 2 * 4096 * 32000 + 2 * 4 * 32 * 512 * 8 * 128)
