"""The node component: publishes a node's GPUs, keeps that up to date, marks started pods and audits the node.

One process on each GPU node. `app` wires it: `watches` has this node's object and its pods, `gpus` asks the driver,
`publishing` writes the node object, `audit` reports problems. If the node pins directly, that is all: pods start and
run without this process. If it pins by device plugin, `app` runs `deviceplugin`, too.
"""
