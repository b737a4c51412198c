"""How objects of a policy get into the cluster: marked as ours, written where they differ, deleted when not wanted."""
