"""Components that run on nodes: one DaemonSet each, or two for the node part."""
