"""The demo: the real daemon on a recorded run, with the recording behind its GPU driver, its log and its endpoint."""
