"""The tables of Aliyun's plugin `kubectl inspect gpushare`, made the way it makes them: a text with tabs, and Go's
tabwriter over it. Slow and plain; only there to be compared with.
"""

from typing import NamedTuple

PADDING = 2


class Pod(NamedTuple):
    name: str
    namespace: str
    units: int
    gpu: int  # -1: nobody knows


class Node(NamedTuple):
    name: str
    address: str
    gpus: int
    each: int
    pods: list[Pod]

    def used(self, gpu: int) -> int:
        return sum(pod.units for pod in self.pods if pod.gpu == gpu)

    @property
    def all_used(self) -> int:
        return sum(pod.units for pod in self.pods)

    @property
    def total(self) -> int:
        return self.gpus * self.each

    @property
    def has_pending(self) -> bool:
        return any(pod.gpu == -1 for pod in self.pods)


def tabwriter(text: str) -> str:
    """Cells end with a tab; a column is a run of lines that have such a cell there, and as wide as its widest."""
    lines = [line.split("\t") for line in text.split("\n")]
    widths = [[0] * (len(line) - 1) for line in lines]
    for column in range(max(len(line) for line in lines)):
        run: list[int] = []
        for at in range(len(lines) + 1):
            if at < len(lines) and len(lines[at]) - 1 > column:
                run.append(at)
                continue
            widest = max((len(lines[i][column]) + PADDING for i in run), default=0)
            for i in run:
                widths[i][column] = widest
            run = []
    return "\n".join(
        "".join(cell.ljust(width) for cell, width in zip(line, (*sizes, 0), strict=True))
        for line, sizes in zip(lines, widths, strict=True)
    )


def percent(used: int, total: int) -> int:
    return int(float(used) / float(total) * 100) if total > 0 else 0


def summary(nodes: list[Node], unit: str) -> str:
    most = max((node.gpus for node in nodes), default=0)
    pending = any(node.has_pending for node in nodes)
    text = "NAME\tIPADDRESS\t" + "".join(f"GPU{i}(Allocated/Total)\t" for i in range(most))
    text += ("PENDING(Allocated)\t" if pending else "") + f"GPU Memory({unit})\n"
    length = 0
    for node in nodes:
        row = f"{node.name}\t{node.address}\t"
        row += "".join(f"{node.used(i)}/{node.each}\t" if i < node.gpus else "0/0\t" for i in range(most))
        row += (f"{node.used(-1)}\t" if node.has_pending else "\t") if pending else ""
        row += f"{node.all_used}/{node.total}\n"
        length = length or len(row.encode()) + 20
        text += row
    used, total = sum(node.all_used for node in nodes), sum(node.total for node in nodes)
    text += "-" * length + "\nAllocated/Total GPU Memory In Cluster:\n"
    return tabwriter(text + f"{used}/{total} ({percent(used, total)}%)\t\n")


def details(nodes: list[Node]) -> str:
    text, length = "", 0
    for node in nodes:
        text += f"\nNAME:\t{node.name}\nIPADDRESS:\t{node.address}\n\nNAME\tNAMESPACE\t"
        text += "".join(f"GPU{i}(Allocated)\t" for i in range(node.gpus))
        text += "Pending(Allocated)\t\n" if node.has_pending else "\n"
        rows = ""
        for pod in node.pods:
            places = [*range(node.gpus), -1] if node.has_pending else list(range(node.gpus))
            amounts = "".join(f"{pod.units if pod.gpu == place else 0}\t" for place in places)
            rows += f"{pod.name}\t{pod.namespace}\t{amounts}\n"
        length = length or len(rows.encode()) + 10
        text += rows + f"Allocated :\t{node.all_used} ({percent(node.all_used, node.total)}%)\t\n"
        text += f"Total :\t{node.total} \t\n" + "-" * length + "\n"
    used, total = sum(node.all_used for node in nodes), sum(node.total for node in nodes)
    text += f"\n\nAllocated/Total GPU Memory In Cluster:\t{used}/{total} ({percent(used, total)}%)\t\n"
    return tabwriter(text)
