"""The node component: publishes a node's GPUs, keeps what it published true, and looks after the pods there.

One process on each GPU node. `gpus` asks the driver, `publish` says what the node object must show, `publisher` writes
it; `pods` keeps the pods of this node, `assigned` marks those that have started, `audit` looks for what must not be.
Where the binding is the pin, that is all: this process does not stand between a pod and its GPU, and nothing that runs
notices when it is away. Where a device plugin pins, `app` runs that one, too.
"""
