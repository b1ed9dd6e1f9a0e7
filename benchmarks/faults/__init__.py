"""Faults of `fault_matrix`: what is broken (cases), on which hosts (gpus, engines, probes), and what was told of it."""
