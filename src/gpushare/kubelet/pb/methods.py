"""The two gRPC APIs of kubelet: names of services and methods, and the words in their messages.

The messages themselves are in `deviceplugin_pb2` and `podresources_pb2`.
"""

from typing import Final

VERSION: Final = "v1beta1"

REGISTRATION: Final = "v1beta1.Registration"
REGISTER: Final = "Register"

DEVICE_PLUGIN: Final = "v1beta1.DevicePlugin"
OPTIONS: Final = "GetDevicePluginOptions"
LIST_AND_WATCH: Final = "ListAndWatch"
PREFERRED: Final = "GetPreferredAllocation"
ALLOCATE: Final = "Allocate"
PRE_START: Final = "PreStartContainer"

POD_RESOURCES: Final = "v1.PodResourcesLister"
LIST: Final = "List"

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
LIST_LIMIT: Final = 4 << 20  # bytes of one message that kubelet receives, its gRPC's default


def path(service: str, method: str) -> str:
    return f"/{service}/{method}"
