"""The audit: finds problems on this node that nothing else would report, such as a pod that sees a GPU it did not get.

`findings` and `visible_gpus` compare and are pure; `auditor` runs them when something changed and reports.
"""
