"""The messages that the hooks read and write, by public field number: the wire contract as a compact table.

One table per package, one line per message: `Name: field=NUMBER:type ...`. Types: nothing = string, `map` = map<string,
string>, `*type` = repeated, a scalar's name, else a message of the same table. Enumerations are int32, which is the
same on the wire. Fields that no hook needs are left out: protobuf keeps unknown fields and sends them on.

Sources of the numbers: containerd/nri pkg/api, kubernetes/cri-api runtime/v1 (v1alpha2 has the same), koordinator
apis/runtime/v1alpha1, containerd/ttrpc, kubernetes/kubelet pkg/apis podresources/v1, dra/v1, pluginregistration/v1.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TTRPC: Final = """
Status: code=1:int32 message=2
Request: service=1 method=2 payload=3:bytes timeout_nano=4:int64
Response: status=1:Status payload=2:bytes
"""

_NRI: Final = """
RegisterPluginRequest: name=1 index=2 nri_version=3
ConfigureRequest: config=1 runtime=2 version=3 registration_timeout=4:int64 request_timeout=5:int64
ConfigureResponse: events=2:int32
SynchronizeRequest: pods=1:*Pod containers=2:*Container more=3:bool
SynchronizeResponse: updates=1:*Update more=2:bool
ContainerRequest: pod=1:Pod container=2:Container resources=3:Resources
CreateContainerResponse: adjust=1:Adjust updates=2:*Update
UpdateContainerResponse: updates=1:*Update
StateChange: event=1:int32 pod=2:Pod container=3:Container
Pod: id=1 name=2 uid=3 namespace=4 labels=5:map annotations=6:map linux=8:PodLinux pid=9:uint32
PodLinux: cgroup_parent=3
Container: id=1 pod_id=2 name=3 state=4:int32 labels=5:map annotations=6:map env=8:*string linux=11:ContainerLinux
+ pid=12:uint32
ContainerLinux: resources=3:Resources cgroups_path=5
Resources: memory=1:Memory cpu=2:Cpu unified=6:map
Memory: limit=1:Int64
Cpu: shares=1:UInt64 quota=2:Int64 period=3:UInt64 cpus=6 mems=7
Int64: value=1:int64
UInt64: value=1:uint64
Adjust: env=4:*KeyValue linux=6:AdjustLinux
KeyValue: key=1 value=2
AdjustLinux: resources=2:Resources
Update: container_id=1 linux=2:UpdateLinux ignore_failure=3:bool
UpdateLinux: resources=1:Resources
"""

_RESOURCES: Final = """
Resources: cpu_period=1:int64 cpu_quota=2:int64 cpu_shares=3:int64 memory_limit_in_bytes=4:int64 oom_score_adj=5:int64
+ cpuset_cpus=6 cpuset_mems=7 unified=9:map memory_swap_limit_in_bytes=10:int64
PodMetadata: name=1 uid=2 namespace=3 attempt=4:uint32
"""

_CRI: Final = f"""{_RESOURCES}
ContainerMetadata: name=1 attempt=2:uint32
SandboxConfig: metadata=1:PodMetadata labels=6:map annotations=7:map linux=8:SandboxLinux
SandboxLinux: cgroup_parent=1 security_context=2:SandboxSecurity overhead=4:Resources resources=5:Resources
SandboxSecurity: namespaces=1:Namespaces
Namespaces: network=1:int32 pid=2:int32 ipc=3:int32
RunPodSandboxRequest: config=1:SandboxConfig runtime_handler=2
SandboxId: pod_sandbox_id=1
ContainerId: container_id=1
StopContainerRequest: container_id=1 timeout=2:int64
KeyValue: key=1 value=2
ImageSpec: image=1
ContainerConfig: metadata=1:ContainerMetadata image=2:ImageSpec command=3:*string args=4:*string envs=6:*KeyValue
+ labels=9:map annotations=10:map log_path=11 linux=15:ContainerLinux
ContainerLinux: resources=1:Resources
CreateContainerRequest: pod_sandbox_id=1 config=2:ContainerConfig sandbox_config=3:SandboxConfig
UpdateContainerResourcesRequest: container_id=1 linux=2:Resources annotations=4:map
ListPodSandboxRequest:
Sandbox: id=1 metadata=2:PodMetadata state=3:int32 labels=5:map annotations=6:map runtime_handler=7
ListPodSandboxResponse: items=1:*Sandbox
ListContainersRequest:
Container: id=1 pod_sandbox_id=2 metadata=3:ContainerMetadata state=6:int32 labels=8:map annotations=9:map
ListContainersResponse: containers=1:*Container
StatusRequest: id=1 verbose=2:bool
SandboxStatusResponse: info=2:map
ContainerStatus: id=1 resources=16:StatusResources
StatusResources: linux=1:Resources
ContainerStatusResponse: status=1:ContainerStatus info=2:map
VersionResponse: version=1 runtime_name=2 runtime_version=3 runtime_api_version=4
ExecSyncRequest: container_id=1 cmd=2:*string timeout=3:int64
ExecSyncResponse: stdout=1:bytes stderr=2:bytes exit_code=3:int32
ExecRequest: container_id=1 cmd=2:*string tty=3:bool stdin=4:bool stdout=5:bool stderr=6:bool
ExecResponse: url=1
ContainerEvent: container_id=1 type=2:int32 created_at=3:int64
"""

_HOOK: Final = f"""{_RESOURCES}
ContainerMetadata: name=1 attempt=2:uint32 id=3
SandboxRequest: pod_meta=1:PodMetadata runtime_handler=2 labels=3:map annotations=4:map cgroup_parent=5
+ overhead=6:Resources resources=7:Resources
SandboxResponse: labels=1:map annotations=2:map cgroup_parent=3 resources=4:Resources
ContainerRequest: pod_meta=1:PodMetadata container_meta=2:ContainerMetadata container_annotations=3:map
+ container_resources=4:Resources pod_resources=5:Resources pod_annotations=6:map pod_labels=7:map pod_cgroup_parent=8
+ container_envs=9:map
ContainerResponse: container_annotations=1:map container_resources=2:Resources pod_cgroup_parent=3 container_envs=4:map
"""

_POD_RESOURCES: Final = """
ListRequest:
ListResponse: pod_resources=1:*Pod
Pod: name=1 namespace=2 containers=3:*Container
Container: name=1 cpu_ids=3:*int64
AllocatableRequest:
AllocatableResponse: cpu_ids=2:*int64
"""

_DRA: Final = """
Claim: namespace=1 uid=2 name=3
ClaimsRequest: claims=1:*Claim
Device: request_names=1:*string pool_name=2 device_name=3 cdi_device_ids=4:*string
Prepared: devices=1:*Device error=2
PreparedEntry: key=1 value=2:Prepared
PrepareResponse: claims=1:*PreparedEntry
Unprepared: error=1
UnpreparedEntry: key=1 value=2:Unprepared
UnprepareResponse: claims=1:*UnpreparedEntry
"""
"""A map from texts to messages is repeated entries on the wire."""

_REGISTRATION: Final = """
InfoRequest:
PluginInfo: type=1 name=2 endpoint=3 supported_versions=4:*string
RegistrationStatus: plugin_registered=1:bool error=2
RegistrationStatusResponse:
"""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "uint32": _Field.TYPE_UINT32,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
}


def message_classes(package: str, table: str) -> SimpleNamespace:
    """Return the protobuf classes of a table as attributes by name; a ValueError names an invalid line."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for line in filter(None, table.replace("\n+", "").splitlines()):
        name, colon, fields = line.partition(":")
        if not colon:
            raise ValueError(f"message table {package}: no ':' in {line!r}")
        message = file.message_type.add(name=name)
        for field in fields.split():
            _add_field(message, f".{package}", field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = {m.name: pool.FindMessageTypeByName(f"{package}.{m.name}") for m in file.message_type}
    return SimpleNamespace(**{name: message_factory.GetMessageClass(d) for name, d in descriptors.items()})


def _add_field(message: Any, scope: str, text: str) -> None:
    name, _, rest = text.partition("=")
    number, _, kind = rest.partition(":")
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind == "map" or kind.startswith("*"):
        field.label = _Field.LABEL_REPEATED
    if kind == "map":  # on the wire repeated pairs; the name of the pair's type follows from the field's
        kind = "".join(word.capitalize() for word in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=kind)
        entry.options.map_entry = True
        for number_in_pair, key in enumerate(("key", "value"), start=1):
            entry.field.add(name=key, number=number_in_pair, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
        scope += f".{message.name}"
    kind = kind.removeprefix("*") or "string"
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f"{scope}.{kind}"


ttrpc: Final[Any] = message_classes("ttrpc", _TTRPC)
nri: Final[Any] = message_classes("nri", _NRI)
cri: Final[Any] = message_classes("cri", _CRI)
hook: Final[Any] = message_classes("hook", _HOOK)
pod_resources: Final[Any] = message_classes("pod_resources", _POD_RESOURCES)
dra: Final[Any] = message_classes("dra", _DRA)
registration: Final[Any] = message_classes("registration", _REGISTRATION)
