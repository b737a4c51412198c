"""Errors for people when NVML cannot be used: what, why, and what usually helps.

If a failure of the driver has one usual cause, the error names it.
"""

import os
from collections.abc import Mapping

import pynvml  # type: ignore[import-untyped]
from pynvml import NVMLError

from gpushare.gpu.device import NoDriver, NoGpu
from gpushare.obs import errors
from gpushare.obs.errors import UserError

ASK_THE_DRIVER = "on the node: nvidia-smi; it shows what is wrong"

# By NVML's code: what, and the way out. The why is the NVML function and its error.
KNOWN = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA driver is not loaded",
        "on the node: nvidia-smi; then load the driver, or remove label gpushare=true if the node has no GPU",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver and its library are of different versions",
        "reboot the node: the driver was upgraded while it was in use",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "the NVIDIA driver refuses this container",
        "runtimeClassName: nvidia in the DaemonSet, or nvidia as default runtime",
    ),
    pynvml.NVML_ERROR_UNKNOWN: (
        "the NVIDIA driver fails",
        "restart this pod (systemctl daemon-reload takes GPUs from containers); if nvidia-smi fails too, the node",
    ),
}


def failed(error: NVMLError, function: str) -> UserError:
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return NoDriver(
            "libnvidia-ml.so.1 not found",
            "no NVIDIA driver in this container, or it does not run with the nvidia runtime",
            "on the node: nvidia-smi; then runtimeClassName: nvidia in the DaemonSet, or nvidia as default runtime",
            errors.CLUSTER_NOT_ASKED,
        )
    what, way = KNOWN.get(error.value, ("the NVIDIA driver fails", ASK_THE_DRIVER))
    return errors.not_asked(what, f"{function}: {error}", way)


def no_gpu(driver: str, environment: Mapping[str, str] = os.environ) -> NoGpu:
    visible = environment.get("NVIDIA_VISIBLE_DEVICES")
    value = "not set" if visible is None else f'"{visible}"'
    return NoGpu(
        "the driver works but shows no GPU",
        f"NVML {driver} lists 0 devices; NVIDIA_VISIBLE_DEVICES is {value}",
        "NVIDIA_VISIBLE_DEVICES=all, or remove label gpushare=true if the node has no GPU",
        errors.CLUSTER_NOT_ASKED,
    )


def none_readable(count: int, notes: tuple[str, ...]) -> UserError:
    return errors.not_asked(f"none of the {count} GPUs can be read", "; ".join(notes), ASK_THE_DRIVER)


def hangs(function: str, limit: float) -> UserError:
    return errors.not_asked(
        "the NVIDIA driver does not answer",
        f"{function} has not come back for {limit:g} s; that call is abandoned",
        "on the node: nvidia-smi; if that hangs too, look for Xid in dmesg and reboot the node",
    )


def still_hangs(stuck: int) -> UserError:
    return errors.not_asked(
        "the NVIDIA driver does not answer",
        f"{stuck} abandoned calls have not come back; no more are made until one does",
        "on the node: nvidia-smi; if that hangs too, look for Xid in dmesg and reboot the node",
    )
