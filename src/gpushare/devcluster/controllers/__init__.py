"""The controllers of the embedded cluster: Deployments and Jobs get their pods. As small as possible."""
