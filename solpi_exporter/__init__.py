"""solpi-exporter: what the control layer costs each token of an LLM inference host, as Prometheus metrics."""

__version__ = "0.1.0"
