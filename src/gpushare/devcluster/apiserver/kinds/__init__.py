"""The kinds that the embedded API server knows: what is defaulted, what is refused, what may never change."""
