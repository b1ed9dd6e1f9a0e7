"""The host's side: how procfs, sysfs and cgroups explain a token that came late. World-readable files only."""
