"""kubelet's folders and sockets on a node, below its root folder.

A device plugin puts its own socket into the device-plugins folder and registers at kubelet's socket there. kubelet
answers which container has which device at the pod-resources socket.
"""

from typing import Final

ROOT: Final = "/var/lib/kubelet"
DEVICE_PLUGINS: Final = "device-plugins"
KUBELET_SOCKET: Final = "kubelet.sock"  # in the device-plugins folder
POD_RESOURCES: Final = "pod-resources/kubelet.sock"
