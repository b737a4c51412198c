"""The controllers of the embedded cluster: Deployments and Jobs get their pods. The smallest that behave."""
