"""The pods of scheduler_name_pods.yaml, and what a pod gets where admission pins nvidia.com/gpu, or not."""

from pathlib import Path

from tests.contracts.api import admission_table
from tests.support import yaml_text
from tests.support.api_client import Object

TABLE: list[Object] = yaml_text.document((Path(__file__).parent / "scheduler_name_pods.yaml").read_text("utf-8"))
MANY: list[Object] = [
    {
        "name": f"{count} containers, and the last asks",
        "asks": {f"c{i}": {"mem": 1} if i == count - 1 else {} for i in range(count)},
        "gets": gets,
    }
    for count, gets in ((500, "gpu-scheduler"), (501, "default-scheduler"))
]


def pod(row: Object) -> Object:
    made = admission_table.pod({"scheduler": "", **row}, admission_table.name(row)[:63].rstrip("-"))
    if not made["spec"]["schedulerName"]:
        del made["spec"]["schedulerName"]
    return made


def expected(row: Object, *, nvidia: bool) -> str:
    return str(row["gets"] if nvidia else row.get("else", row["gets"]))
