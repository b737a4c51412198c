"""The points of a GPU with what the settings of an admin add or take, and the score of a node made of both.

Pure. `Scoring` is what all points of a cluster depend on besides the GPU: when it changes, all are worked out again.
"""

from gpushare.core.facts.model import Data
from gpushare.core.facts.policies import Score
from gpushare.core.facts.scoring.keti import rounded
from gpushare.core.facts.scoring.load import GpuLoad, Terms
from gpushare.core.facts.scoring.settings import NEUTRAL, Settings

POD_POINTS = 100  # of each pod on a GPU, if GPUs in use are preferred: more than all other points together
LINKED = 0.3  # what is left of the points of a linked GPU, for a pod that needs no link
MANY_GPUS = 10  # points of a node with several GPUs, where these are preferred


class Scoring(Data, frozen=True):
    settings: Settings = NEUTRAL
    largest: int = 0  # memory of the largest GPU of the cluster, in MiB


def points(score: Score, load: GpuLoad, scoring: Scoring, *, single: bool) -> int:
    """`single`: for a pod that asks for one GPU."""
    settings, value = scoring.settings, score.points(load, scoring.largest)
    if settings.prefer == "binpack":
        value += POD_POINTS * load.pods
    if single and settings.avoids_nvlink and load.linked:
        value = rounded(LINKED * value)
    return value


def terms(score: Score, load: GpuLoad, scoring: Scoring, *, single: bool) -> Terms:
    """What these points consist of."""
    settings, found = scoring.settings, score.terms(load, scoring.largest)
    if settings.prefer == "binpack" and load.pods:
        found = (*found, ("binpack", POD_POINTS * load.pods))
    if single and settings.avoids_nvlink and load.linked:
        value = sum([amount for _, amount in found])
        found = (*found, ("nvlink", rounded(LINKED * value) - value))
    return found


def weights(score: Score, settings: Settings) -> tuple[float, float]:
    """Of the points of a node, and of those of its GPUs."""
    node, gpu = settings.node_weight, settings.gpu_weight
    return score.node_weight if node is None else node, score.gpu_weight if gpu is None else gpu


def total(score: Score, settings: Settings, node: int, gpu: int, *, many: bool) -> int:
    """The score of a node out of its own points and those of the GPUs that the pod would get. `many`: it has several
    GPUs."""
    of_node, of_gpu = weights(score, settings)
    return rounded(node * of_node + gpu * of_gpu) + (MANY_GPUS if many and settings.prefers_many_gpus else 0)
