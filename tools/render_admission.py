"""Writes the policies that pin, deploy/admission.yaml and deploy/admission-nvidia.yaml, from the one description below.

They differ in the resources they know, in their names and in the namespaces they leave alone. Run it after a change:
`.venv/bin/python -m tools.render_admission`. A test compares what it would write with what is there.
"""

from collections.abc import Sequence
from pathlib import Path

from gpushare.core.admission import containers, mps, pinning
from gpushare.core.facts import names

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Written by tools/render_admission.py: change it there.\n"
ABOUT = """\
# Pinning by the binding itself: every container that asks for GPU memory, for whole GPUs or for an MPS share reads its
# GPUs from an annotation. gpushare writes the annotation in the same request that binds the pod. Kubernetes 1.36 or
# later; before that use webhook.yaml. Apply guard.yaml too: without it a tenant can write that annotation.
#
# A container that asks for an MPS share gets what it needs to reach the MPS daemon of its node as well: two folders of
# the node. Namespaces whose pod security level is baseline or restricted refuse them, and so such pods.
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
    - name: used
      expression: variables.references.filter(reference, reference != '')
    - name: runs # what comes before a container's number, the first that makes an annotation nobody uses
      expression: "[%(runs)s]"
    - name: places # of each container: its path, and how the names of its annotations end
      expression: >-
        variables.every.transformList(i, container, i < variables.apps
          ? {'path': '/spec/containers/' + string(i), 'kind': '', 'number': string(i)}
          : {'path': '/spec/initContainers/' + string(i - variables.apps), 'kind': 'init-',
            'number': string(i - variables.apps)})
    - name: clients # what MPS clients find in their env; the last only if the pod says how many threads they may use
      expression: >-
        ['%(pipe_env)s', '%(limit_env)s']
        + ('%(threads)s' in object.metadata.?annotations.orValue({})
          ? ['%(threads_env)s'] : [])
    - name: folders # of the node, that they need: volume and path. With hostIPC they have the shared memory already
      expression: >-
        object.spec.?hostIPC.orValue(false)
          ? [[%(pipes_volume)s]]
          : [[%(pipes_volume)s], [%(shm_volume)s]]
    - name: sharing # for each container: whether it asks for an MPS share. With 0 it may run where the folders are not
      expression: >-
        variables.every.map(container, '%(mps)s' in container.?resources.limits.orValue({})
          && quantity(string(container.resources.limits['%(mps)s'])).isGreaterThan(quantity('0')))
    - name: asking # each container that asks and is not pinned yet. For MPS: what is not there yet, by name
      expression: >-
        variables.every.transformList(i, container,
          variables.references[i] == ''
          && [%(resources)s].exists(resource,
            resource in container.?resources.limits.orValue({})),
          {
            'path': dyn(variables.places[i].path),
            'end': dyn(variables.places[i].kind + (size(variables.used) == 0 ? '' : (variables.runs.filter(run,
              !("metadata.annotations['gpushare.io/visible-" + variables.places[i].kind + run
                + variables.places[i].number + "']" in variables.used)) + ['%(last)s'])[0])
              + variables.places[i].number),
            'memory': dyn(string(container.resources.limits[?'aliyun.com/gpu-mem'].orValue(''))),
            'env': dyn(size(container.?env.orValue([])) > 0),
            'mounts': dyn(size(container.?volumeMounts.orValue([])) > 0),
            'client': dyn(variables.sharing[i]
              ? variables.clients.filter(name, !container.?env.orValue([]).exists(entry, entry.name == name)) : []),
            'folders': dyn(variables.sharing[i]
              ? variables.folders.filter(folder, !container.?volumeMounts.orValue([]).exists(mount,
                mount.mountPath in [folder[1], folder[1] + '/'])) : []),
          })
    - name: aliyun # entries of the env, the same for all; of Aliyun's plugin
      expression: >-
        ['ALIYUN_COM_GPU_MEM_IDX', 'ALIYUN_COM_GPU_MEM_POD', 'ALIYUN_COM_GPU_MEM_DEV'].map(name, {'name': dyn(name),
          'valueFrom': dyn({'fieldRef': {'fieldPath': "metadata.annotations['" + name + "']"}})})
    - name: threads # the same, of MPS
      expression: >-
        [{'name': dyn('%(threads_env)s'),
          'valueFrom': dyn({'fieldRef': {'fieldPath': "metadata.annotations['%(threads)s']"}})}]
    # For each of them, what is added to its env. NVIDIA_VISIBLE_DEVICES comes last: of two entries with one name the
    # last one counts, so a tenant's own loses. What people wrote themselves for MPS stays as it is. The API server
    # writes 7000 as 7k; here it becomes a number again. An annotation is named by the container's position, and by more
    # where that name is in use: others add containers in front, and then we run again.
    - name: entries
      expression: >-
        variables.asking.map(container,
          (container.memory != '' && quantity(container.memory).isInteger()
            && quantity(container.memory).isLessThan(quantity('%(most_memory)d'))
            ? [{'name': dyn('ALIYUN_COM_GPU_MEM_CONTAINER'),
              'value': dyn(string(quantity(container.memory).asInteger()))}] : [])
          + ('%(pipe_env)s' in container.client
            ? [{'name': dyn('%(pipe_env)s'), 'value': dyn('%(pipes)s')}] : [])
          + ('%(limit_env)s' in container.client
            ? [{'name': dyn('%(limit_env)s'), 'valueFrom': dyn({'fieldRef': {
              'fieldPath': "metadata.annotations['%(limit)s" + container.end + "']"}})}] : [])
          + ('%(threads_env)s' in container.client ? variables.threads : [])
          + variables.aliyun
          + [{'name': dyn('NVIDIA_VISIBLE_DEVICES'), 'valueFrom': dyn({'fieldRef': {
            'fieldPath': "metadata.annotations['gpushare.io/visible-" + container.end + "']"}})}])
    - name: volumes # that are needed and not there. Where no MPS daemon made its folder, a pod waits for it
      expression: >-
        variables.folders.filter(folder, variables.asking.exists(container, folder in container.folders)
          && !object.spec.?volumes.orValue([]).exists(volume, volume.name == folder[0])).map(folder, {
            'name': dyn(folder[0]), 'hostPath': dyn({'path': folder[1], 'type': '%(must_exist)s'})})
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        # What costs most is in the variables: each of them, and this, has a budget of its own.
        expression: >-
          variables.asking.transformList(i, container,
            (container.env
              ? variables.entries[i].map(entry,
                JSONPatch{op: 'add', path: container.path + '/env/-', value: entry})
              : [JSONPatch{op: 'add', path: container.path + '/env', value: variables.entries[i]}])
            + (container.mounts || size(container.folders) == 0 ? []
              : [JSONPatch{op: 'add', path: container.path + '/volumeMounts', value: []}])
            + container.folders.map(folder, JSONPatch{op: 'add', path: container.path + '/volumeMounts/-',
              value: {'name': folder[0], 'mountPath': folder[1]}})
          ).flatten()
          + (size(variables.volumes) == 0 || size(object.spec.?volumes.orValue([])) > 0 ? []
            : [JSONPatch{op: 'add', path: '/spec/volumes', value: []}])
          + variables.volumes.map(volume, JSONPatch{op: 'add', path: '/spec/volumes/-', value: volume})
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
    of_mps = {
        "mps": names.MPS_GPU, "threads": names.MPS_THREADS, "limit": names.MPS_LIMIT_PREFIX,
        "pipe_env": names.MPS_PIPE, "limit_env": names.MPS_LIMIT, "threads_env": names.MPS_PERCENTAGE,
        "pipes": names.MPS_PIPE_FOLDER, "pipes_volume": _quoted(mps.PIPES), "shm_volume": _quoted(mps.SHARED_MEMORY),
        "must_exist": mps.MUST_EXIST,
    }  # fmt: skip
    return POLICY % {"name": name, "most": containers.MOST, "most_memory": pinning.MOST_MEMORY, **known, **of_mps}


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


if __name__ == "__main__":
    for path, text in rendered().items():
        (ROOT / path).write_text(text, "utf-8")
