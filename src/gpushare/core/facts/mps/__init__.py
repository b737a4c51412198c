"""What two components must agree on about MPS: how the daemon of a node is, and how many clients a GPU serves."""
