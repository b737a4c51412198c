"""What the operator sees of the cluster: its kinds of objects, watched, and only as much of each as it decides by."""
