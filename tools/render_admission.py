"""Writes the policies that pin, deploy/admission.yaml and deploy/admission-nvidia.yaml, from the one description below.

They differ in the resources they know, in their names and in the namespaces they leave alone. Run it after a change:
`.venv/bin/python -m tools.render_admission`. A test compares what it would write with what is there.
"""

from collections.abc import Sequence
from pathlib import Path

from gpushare.core.admission import containers, pinning
from gpushare.core.facts import names

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Written by tools/render_admission.py: change it there.\n"
ABOUT = """\
# Pinning by the binding itself: every container that asks for GPU memory, for whole GPUs or for an MPS share reads its
# GPUs from an annotation. gpushare writes the annotation in the same request that binds the pod. Kubernetes 1.36 or
# later; before that use webhook.yaml. Apply guard.yaml too: without it a tenant can write that annotation.
#
# Only for clusters, or namespaces, whose GPU nodes pin directly: a pod changed by this policy goes to no other node. In
# a cluster with nodes of both kinds, limit it to namespaces: see matchResources at the end.
"""
LIMITED = """\
  # To limit it to namespaces with this label (kubectl label namespace NAME gpushare.io/pin=direct):
  # matchResources:
  #   namespaceSelector:
  #     matchLabels: {gpushare.io/pin: direct}
"""
ABOUT_NVIDIA = """\
# The same as admission.yaml, for containers that ask for nvidia.com/gpu: they get whole GPUs that gpushare counts. Only
# for clusters whose nodes run `gpushare node --nvidia-gpu=whole`: a pod changed by this policy goes to no other node,
# and so to none of NVIDIA's device plugin. Namespaces with the label gpushare.io/nvidia-gpu=leave are left alone.
# Kubernetes 1.36 or later; before that use webhook.yaml with --nvidia-gpu=whole.
"""
NOT_LEFT = """\
  matchResources:
    namespaceSelector:
      matchExpressions:
        - {key: %s, operator: NotIn, values: [%s]}
"""
POLICY = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: %(name)s
  labels: {app: gpushare, component: %(name)s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded # others may add containers after us
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE]
        resources: [pods]
  matchConditions:
    # A pod without containers is null here. A pod with very many would keep the API server busy, so it is not changed.
    # It is not pinned then, and goes to no node that pins directly.
    - name: has-a-sensible-number-of-containers
      expression: >-
        object.spec.containers != null && size(object.spec.containers) <= %(most)d
        && size(object.spec.?initContainers.orValue([])) <= %(most)d
  variables:
    - name: apps
      expression: size(object.spec.containers)
    - name: every
      expression: object.spec.containers + object.spec.?initContainers.orValue([])
    - name: references # for each container: the annotation of ours that its last env entry is taken from, or nothing
      expression: >-
        variables.every.map(container,
          container.?env.orValue([]).last().name.orValue('') == 'NVIDIA_VISIBLE_DEVICES'
          && container.env.last().?valueFrom.fieldRef.fieldPath.orValue('')
            .startsWith("metadata.annotations['gpushare.io/visible-")
          ? container.env.last().valueFrom.fieldRef.fieldPath.orValue('') : '')
    - name: asking # for each container that asks and is not pinned yet: its path, its number, and what we need to know
      expression: >-
        variables.every.transformList(i, container,
          variables.references[i] == ''
          && [%(resources)s].exists(resource,
            resource in container.?resources.limits.orValue({})),
          {
            'path': i < variables.apps
              ? '/spec/containers/' + string(i)
              : '/spec/initContainers/' + string(i - variables.apps),
            'kind': i < variables.apps ? 'gpushare.io/visible-' : 'gpushare.io/visible-init-',
            'number': string(i < variables.apps ? i : i - variables.apps),
            'memory': string(container.resources.limits[?'aliyun.com/gpu-mem'].orValue('')),
            'env': size(container.?env.orValue([])) > 0 ? 'some' : 'none',
          })
    - name: used
      expression: variables.references.filter(reference, reference != '')
    - name: runs # what comes before a container's number, the first that makes an annotation nobody uses
      expression: "[%(runs)s]"
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        # NVIDIA_VISIBLE_DEVICES comes last: of two entries with one name the last one counts, so a tenant's own loses.
        # The variables of Aliyun's plugin are set too. The API server writes 7000 as 7k; here it becomes a number
        # again. An annotation is named by the container's position, and by more where that name is in use: others add
        # containers in front, and then we run again.
        expression: >-
          variables.asking.map(container,
            (container.env == 'none' ? [JSONPatch{op: 'add', path: container.path + '/env', value: []}] : [])
            + (container.memory != '' && quantity(container.memory).isInteger()
              && quantity(container.memory).isLessThan(quantity('%(most_memory)d'))
              ? [JSONPatch{op: 'add', path: container.path + '/env/-', value: Object.spec.containers.env{
                  name: 'ALIYUN_COM_GPU_MEM_CONTAINER', value: string(quantity(container.memory).asInteger())}}]
              : [])
            + [['ALIYUN_COM_GPU_MEM_IDX', 'ALIYUN_COM_GPU_MEM_IDX'],
              ['ALIYUN_COM_GPU_MEM_POD', 'ALIYUN_COM_GPU_MEM_POD'],
              ['ALIYUN_COM_GPU_MEM_DEV', 'ALIYUN_COM_GPU_MEM_DEV'],
              ['NVIDIA_VISIBLE_DEVICES', container.kind
                + (size(variables.used) == 0 ? '' : (variables.runs.filter(run,
                  !("metadata.annotations['" + container.kind + run + container.number + "']" in variables.used))
                  + ['%(last)s'])[0]) + container.number]].map(pair,
                JSONPatch{op: 'add', path: container.path + '/env/-', value: Object.spec.containers.env{
                  name: pair[0],
                  valueFrom: Object.spec.containers.env.valueFrom{
                    fieldRef: Object.spec.containers.env.valueFrom.fieldRef{
                      fieldPath: "metadata.annotations['" + pair[1] + "']"}}}})
          ).flatten()
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: %(name)s
  labels: {app: gpushare, component: %(name)s}
spec:
  policyName: %(name)s
"""


def rendered() -> dict[str, str]:
    """By path, what each file says."""
    return {
        "deploy/admission.yaml": HEADER + ABOUT + _policy("gpushare-pin", names.PINNED) + LIMITED,
        "deploy/admission-nvidia.yaml": HEADER
        + ABOUT_NVIDIA
        + _policy("gpushare-pin-nvidia", [names.NVIDIA_GPU])
        + NOT_LEFT % pinning.NVIDIA_LEFT,
    }


def _policy(name: str, resources: Sequence[str]) -> str:
    known = {"resources": _quoted(resources), "runs": _quoted(pinning.RUNS), "last": pinning.RUNS[-1]}
    return POLICY % {"name": name, "most": containers.MOST, "most_memory": pinning.MOST_MEMORY, **known}


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


if __name__ == "__main__":
    for path, text in rendered().items():
        (ROOT / path).write_text(text, "utf-8")
