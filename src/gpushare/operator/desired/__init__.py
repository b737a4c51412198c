"""What a ClusterPolicy asks for, as objects. Pure: one file for each component."""
