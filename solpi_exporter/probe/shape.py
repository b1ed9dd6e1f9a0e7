"""The shapes that the probe decodes: how wide the one weight-tied layer is, and how often it is run."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

KV_BLOCK = 16  # tokens in one block of a paged KV cache, vLLM's default; the ablation keeps one block


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder stack: `layers` runs of one layer, each with `context` tokens of KV cache of its own.

    One layer's weights are meant to exceed the GPU's L2, so that running it again reads memory again.
    """

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    layers: int
    context: int


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        shape.name: shape
        for shape in (
            Shape("8b", 4096, 32, 8, 128, 14336, 32000, layers=4, context=512),
            Shape("1b", 2048, 32, 8, 64, 8192, 16384, layers=4, context=512),
            Shape("small", 256, 4, 2, 64, 704, 2048, layers=4, context=512),
        )
    }
)


def smallest(shape: Shape) -> Shape:
    """Return the smallest legal shape with as many layers: every call is made, nothing is computed."""
    return Shape("smallest", 2, 1, 1, 2, 2, 2, layers=shape.layers, context=1)
