"""What admission does to a pod before it exists: it pins containers, gives MPS clients what they need, hides GPUs that
nobody asked for, names the second scheduler where there is one, turns KETI's priority into a class, guards the
annotations that only gpushare writes, and refuses what can never be right.

Pure functions over objects as JSON. The webhook and the stand-in API server call them; the policies in deploy/ say the
same in CEL, and the same pods go through all three in tests.
"""
