"""What an admin asks for in KETI's policy ConfigMaps, while the extender runs: `--policy-namespace`.

`maps` watches them and says what came of a change, `rescheduler` moves pods off bad GPUs, `part` connects both. What
the keys mean is in `core/facts/scoring`. Without the option nothing of this runs.
"""
