"""A proxy in front of an embedded or real API server that makes faults by a seeded plan. For tests."""
