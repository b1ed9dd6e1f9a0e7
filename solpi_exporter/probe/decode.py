"""The workload: one decode step of a Llama-shaped stack, on whatever device torch is given.

Its weights are random and its text is nonsense; its calls, launches and memory traffic are those of a decoder.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from solpi_exporter.probe.shape import KV_BLOCK, Shape


class DecodeStack:
    """One layer's weights and a KV cache for up to `batch` sequences, allocated once and never released."""

    def __init__(self, shape: Shape, batch: int, device: torch.device, dtype: torch.dtype) -> None:
        self.shape = shape
        self.device = device
        self.dtype = dtype
        generator = torch.Generator(device).manual_seed(0)

        def weights(*size: int) -> torch.Tensor:
            return torch.randn(*size, generator=generator, device=device, dtype=dtype) * 0.02

        query, kv = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.embedding = weights(shape.vocabulary, shape.hidden)
        self.qkv = weights(shape.hidden, query + 2 * kv)
        self.output = weights(query, shape.hidden)
        self.gate_up = weights(shape.hidden, 2 * shape.intermediate)
        self.down = weights(shape.intermediate, shape.hidden)
        self.head = weights(shape.hidden, shape.vocabulary)
        self.norm = torch.ones(shape.hidden, device=device, dtype=dtype)
        self.cosine, self.sine = weights(shape.head_size), weights(shape.head_size)
        self.cache = weights(shape.layers, 2, batch, shape.context, shape.kv_heads, shape.head_size)


def _do_nothing() -> None:
    """Be called."""


class DecodeStep:
    """The step for one batch size: fixed tensors, so that it can be launched or captured as a CUDA graph."""

    def __init__(self, stack: DecodeStack, batch: int) -> None:
        shape = stack.shape
        self._stack = stack
        self._batch = batch
        self._blocks = max(1, shape.context // KV_BLOCK)
        pinned = stack.device.type == "cuda"
        table = torch.arange(batch * self._blocks).view(batch, self._blocks)
        self._host_table = table.pin_memory() if pinned else table
        self._host_slots = torch.zeros(batch, dtype=torch.long, pin_memory=pinned)
        self.host_tokens = torch.zeros(batch, dtype=torch.long, pin_memory=pinned)
        self._table = torch.zeros_like(self._host_table, device=stack.device)
        self._slots = torch.zeros_like(self._host_slots, device=stack.device)
        self.tokens = torch.zeros(batch, dtype=torch.long, device=stack.device)
        # Where tokens wait to be read one step behind: on the device, and on the host.
        self.behind = [
            (torch.zeros_like(self.tokens), torch.zeros_like(self.host_tokens, pin_memory=pinned)) for _ in range(2)
        ]

    def prepare(self) -> None:
        """Do what an engine does before each step, as a fixed stand-in: block table and slot map, copied in.

        An engine appends to its table; building all of it anew would make scheduling grow with the context.
        """
        context = self._stack.shape.context
        blocks = [(row + 1) * self._blocks - 1 for row in range(self._batch)]
        slots = [row * context + context - 1 for row in range(self._batch)]
        self._host_table[:, -1] = torch.tensor(blocks)
        self._host_slots.copy_(torch.tensor(slots))
        self._table.copy_(self._host_table, non_blocking=True)
        self._slots.copy_(self._host_slots, non_blocking=True)

    def forward(
        self, *, attended: int | None = None, layers: int | None = None, started: Callable[[], None] = _do_nothing
    ) -> None:
        """Decode one token for each sequence, attending to `attended` tokens of the KV cache (default: all).

        `layers` are run (default: all); `started` is called once the first kernel is launched.
        """
        stack, shape = self._stack, self._stack.shape
        limit = shape.context if attended is None else min(attended, shape.context)
        x = stack.embedding[self.tokens]
        started()
        for layer in range(shape.layers if layers is None else layers):
            x = x + self._attention(x, layer, limit)
            gate, up = (F.rms_norm(x, (shape.hidden,), stack.norm) @ stack.gate_up).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ stack.down
        logits = F.rms_norm(x, (shape.hidden,), stack.norm) @ stack.head
        self.tokens.copy_(logits.argmax(-1))

    def _attention(self, x: torch.Tensor, layer: int, limit: int) -> torch.Tensor:
        """Append this token's keys and values, then attend; each KV head serves a group of query heads.

        In decoding every query sees the whole cache, so a group's queries can stand in the query's length and no
        mask is needed.
        """
        stack, shape = self._stack, self._stack.shape
        query = shape.heads * shape.head_size
        kv = shape.kv_heads * shape.head_size
        q, k, v = (F.rms_norm(x, (shape.hidden,), stack.norm) @ stack.qkv).split([query, kv, kv], -1)
        q = self._rotate(q.view(self._batch, shape.heads, shape.head_size))
        k = self._rotate(k.view(self._batch, shape.kv_heads, shape.head_size))
        keys, values = stack.cache[layer, :, : self._batch]
        keys.view(-1, shape.kv_heads, shape.head_size).index_copy_(0, self._slots, k)
        values.view(-1, shape.kv_heads, shape.head_size).index_copy_(0, self._slots, v.view_as(k))
        attended = F.scaled_dot_product_attention(
            q.view(self._batch, shape.kv_heads, -1, shape.head_size),
            keys[:, :limit].transpose(1, 2),
            values[:, :limit].transpose(1, 2),
        )
        return attended.reshape(self._batch, query) @ stack.output

    def _rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Apply a rotary embedding; the angles of one position serve, since no text depends on them."""
        first, second = x.chunk(2, -1)
        return x * self._stack.cosine + torch.cat((-second, first), -1) * self._stack.sine
