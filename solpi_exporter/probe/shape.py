"""The shapes that the probe decodes: how wide the one weight-tied layer is, and how often it is run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

KV_BLOCK = 16  # tokens in one block of a paged KV cache, vLLM's default; the ablation keeps one block
LARGE_MEMORY = 30 << 30  # bytes of GPU memory from which the 8B-shaped layer is taken by default
ELEMENT_BYTES = 2  # of bfloat16, in which a GPU decodes


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
    full_layers: int | None = None  # of the model that it is taken from

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer: they are read anew in each, unless the L2 holds them."""
        query, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        return self.hidden * (2 * query + 2 * kv + 3 * self.intermediate)

    def moved_elements(self, batch: int) -> int:
        """Return how many numbers a step has to read at least: the weights, the head's, and the KV cache of a batch."""
        cache = 2 * self.layers * batch * self.context * self.kv_heads * self.head_size
        return self.layers * self.layer_parameters + self.hidden * self.vocabulary + cache

    def held_bytes(self, batch: int) -> int:
        """Return how much memory the weights and the KV cache for up to `batch` sequences hold on a GPU."""
        cache = 2 * self.layers * batch * self.context * self.kv_heads * self.head_size
        return ELEMENT_BYTES * (self.layer_parameters + 2 * self.hidden * self.vocabulary + cache)


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        shape.name: shape
        for shape in (
            Shape("8b", 4096, 32, 8, 128, 14336, 32000, layers=4, context=512, full_layers=32),
            Shape("1b", 2048, 32, 8, 64, 8192, 16384, layers=4, context=512, full_layers=16),
            Shape("small", 256, 4, 2, 64, 704, 2048, layers=4, context=512),
        )
    }
)


def auto_shape(memory: float | None) -> str:
    """Return the preset for a GPU with so many bytes of memory; the larger one where that is not known."""
    return "8b" if memory is None or memory >= LARGE_MEMORY else "1b"


def shape_of(name: str, context: int | None = None, layers: int | None = None) -> Shape:
    """Return a preset, with another context or depth where they are given."""
    preset = SHAPES[name]
    return replace(preset, context=context or preset.context, layers=layers or preset.layers)


def smallest(shape: Shape) -> Shape:
    """Return the smallest legal shape with as many layers: every call is made, nothing is computed."""
    return Shape("smallest", 2, 1, 1, 2, 2, 2, layers=shape.layers, context=1)


@dataclass(frozen=True, slots=True)
class Depths:
    """How many layers a round runs, its shallow one, and a whole model."""

    layers: int
    shallow: int
    full: int

    def extrapolate(self, shallow: float, deep: float) -> float:
        """Return a time at full depth: a step is what each layer takes, and what is there once."""
        return deep + (deep - shallow) / (self.layers - self.shallow) * (self.full - self.layers)


def depths_of(shape: Shape) -> Depths | None:
    """Return the depths from which a whole model can be told; None where there is none, or only one."""
    if shape.full_layers is None or not 2 <= shape.layers < shape.full_layers:
        return None
    return Depths(shape.layers, 1, shape.full_layers)
