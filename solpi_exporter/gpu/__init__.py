"""GPUs: NVML through one door, a table of quantities, and the source that reads every GPU on each poll."""
