"""The decode probe: one decoded token of a Llama-shaped stack, timed and split into what it was spent on."""
