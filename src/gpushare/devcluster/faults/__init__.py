"""A proxy that stands before an API server, embedded or real, and misbehaves by a seeded plan. A test double."""
