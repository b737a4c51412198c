"""The messages kubelet speaks, as protobuf code: the device plugin API and the pod resources API.

The node component and the simulated kubelet of the embedded cluster both speak them, and may not import each other,
so they stand beside the adapters. `*_pb2` is written by `tools/protos.py` from the `.proto` files here; how the methods
are called stands in `methods`.
"""
