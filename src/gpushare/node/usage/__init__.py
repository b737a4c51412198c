"""What the GPUs of this node do, and which container does it: sampled once, published to many.

`sampler` asks the driver, `attribution` says which containers the processes belong to. Everything else reads the result
(`model`): the GPUNode of this node, the metrics page, InfluxDB, and the watch for containers that use too much.
"""
