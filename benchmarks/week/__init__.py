"""The simulated hosts of `quiet_week`: who they are (fleet), and what is said of them, minute by minute."""
