"""Why a pod waits, where it would fit, and what would help: one answer for `why`, events, conditions and programs.

`verdict` makes it: `survey` asks every node, `views` describes them, `ways_out` finds what would help, `placed` is for
pods that have their node. `report` is the form of the answer, `event_texts` says it in one sentence, and `condition`
finds our sentences in kube-scheduler's message. `inspected` is who uses how much of which GPU.
"""
