"""`gpushare node --sell=gpus`: whole GPUs or replicas as nvidia.com/gpu, in the place of NVIDIA's device plugin.

For pods that the stock scheduler places, without the extender. `app` wires it; `rules` decides, and is pure; the other
files speak to kubelet, to the node's file system and to nvidia-ctk. Names, ids, sockets, flags, the config file and the
answers are NVIDIA's.
"""
