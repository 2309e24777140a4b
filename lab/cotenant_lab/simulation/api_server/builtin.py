"""The built-in kinds' fields, as a table in a notation of our own.

A line is a type: `Name = field field ...`, continued on indented lines; `Name!` is merged as one value. A field's name
is followed by its type: none for a string, `#` an integer, `%` a boolean, `@` a quantity, `*` a number or string, `?`
anything, `:Type` an object, `=Type` an object that is `{}` if nothing sets it (a Go struct and no pointer), `<>` a map,
`[]` a list that is one value, `[*]` a set, `[a,b=X]` a list whose items are distinguished by the keys a and b (X if b
is missing). Of volumes only the sources that workloads of the demo use are described. Source: Kubernetes 1.35's
published API; the contract tests compare each line with the real server's.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from cotenant_lab.simulation.api_server.schema import ANY, FieldSchema

_FIELD: Final = re.compile(r"([\w$]+)(<>|\[[^\]]*\])?([#%@*?]|[:=]\w+)?")
_SCALARS: Final = {"": "string", "#": "integer", "%": "boolean", "@": "quantity", "*": "number or string"}


class BuiltIn:
    """The types of the table by name; each is built once, when it is first requested."""

    def __init__(self) -> None:
        """Reads the table; types are built when asked for."""
        text = re.sub(r"\n +", " ", _TABLE.strip())
        self._lines = dict(line.split(" = ") for line in text.splitlines())
        self._types: dict[str, FieldSchema] = {}

    def type(self, name: str) -> FieldSchema:
        """Return the type of this name in the table."""
        if name not in self._types:
            atomic = f"{name}!" in self._lines
            fields = [self._field(word) for word in self._lines[f"{name}!" if atomic else name].split()]
            self._types[name] = FieldSchema("object", fields=dict(fields), atomic=atomic)
        return self._types[name]

    def kind(self, name: str) -> FieldSchema:
        """Return the type of a kind's objects: the type of this name with apiVersion, kind and metadata."""
        text = FieldSchema("scalar", "string")
        head = {"apiVersion": text, "kind": text, "metadata": self.type("ObjectMeta")}
        return FieldSchema("object", fields={**head, **self.type(name).fields})

    def _field(self, word: str) -> tuple[str, FieldSchema]:
        match = _FIELD.fullmatch(word)
        assert match, f"{word!r} is not in the table's notation"
        name, container, kind = match[1], match[2] or "", match[3] or ""
        inner = (
            FieldSchema("scalar", _SCALARS[kind]) if kind in _SCALARS else ANY if kind == "?" else self.type(kind[1:])
        )
        inner = replace(inner, is_kept=True) if kind[:1] == "=" else inner
        if container == "<>":
            return name, FieldSchema("object", values=inner)
        if container in ("[]", "[*]"):
            return name, FieldSchema("list", items=inner, is_set=container == "[*]")
        parts = [part.partition("=") for part in container[1:-1].split(",") if part]
        keys = tuple((key, default or None) for key, _, default in parts)
        return name, FieldSchema("list", items=inner, keys=keys) if container else inner


_TABLE: Final = """
Affinity = nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
AppArmorProfile = localhostProfile type
AttachedVolume = devicePath name
Capabilities = add[] drop[]
CSINode = spec?
Condition = lastTransitionTime message observedGeneration# reason status type
ConfigMap = binaryData<> data<> immutable%
ConfigMapEnvSource = name optional%
ConfigMapKeySelector! = key name optional%
ConfigMapProjection = items[]:KeyToPath name optional%
ConfigMapVolumeSource = defaultMode# items[]:KeyToPath name optional%
Container = args[] command[] env[name]:EnvVar envFrom[]:EnvFromSource image imagePullPolicy lifecycle:Lifecycle
  livenessProbe:Probe name ports[containerPort,protocol=TCP]:ContainerPort readinessProbe:Probe
  resizePolicy[]:ContainerResizePolicy resources=ResourceRequirements restartPolicy
  restartPolicyRules[]:ContainerRestartRule securityContext:SecurityContext startupProbe:Probe stdin% stdinOnce%
  terminationMessagePath terminationMessagePolicy tty% volumeDevices[devicePath]:VolumeDevice
  volumeMounts[mountPath]:VolumeMount workingDir
ContainerExtendedResourceRequest = containerName requestName resourceName
ContainerImage = names[] sizeBytes#
ContainerPort = containerPort# hostIP hostPort# name protocol
ContainerResizePolicy = resourceName restartPolicy
ContainerResourceMetricSource = container name target=MetricTarget
ContainerRestartRule = action exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes = operator values[*]#
ContainerState = running:ContainerStateRunning terminated:ContainerStateTerminated waiting:ContainerStateWaiting
ContainerStateRunning = startedAt
ContainerStateTerminated = containerID exitCode# finishedAt message reason signal# startedAt
ContainerStateWaiting = message reason
ContainerStatus = allocatedResources<>@ allocatedResourcesStatus[name]:ResourceStatus containerID image imageID
  lastState=ContainerState name ready% resources:ResourceRequirements restartCount# started% state=ContainerState
  stopSignal user:ContainerUser volumeMounts[mountPath]:VolumeMountStatus
ContainerUser = linux:LinuxContainerUser
CoreEvent = action count# eventTime firstTimestamp involvedObject=ObjectReference lastTimestamp message reason
  related:ObjectReference reportingComponent reportingInstance series:EventSeries source=EventSource type
CronJob = spec=CronJobSpec status=CronJobStatus
CronJobSpec = concurrencyPolicy failedJobsHistoryLimit# jobTemplate=JobTemplateSpec schedule startingDeadlineSeconds#
  successfulJobsHistoryLimit# suspend% timeZone
CronJobStatus = active[]:ObjectReference lastScheduleTime lastSuccessfulTime
CrossVersionObjectReference = apiVersion kind name
DaemonEndpoint = Port#
DaemonSet = spec=DaemonSetSpec status=DaemonSetStatus
DaemonSetCondition = lastTransitionTime message reason status type
DaemonSetSpec = minReadySeconds# revisionHistoryLimit# selector:LabelSelector template=PodTemplateSpec
  updateStrategy=DaemonSetUpdateStrategy
DaemonSetStatus = collisionCount# conditions[type]:DaemonSetCondition currentNumberScheduled# desiredNumberScheduled#
  numberAvailable# numberMisscheduled# numberReady# numberUnavailable# observedGeneration# updatedNumberScheduled#
DaemonSetUpdateStrategy = rollingUpdate:RollingUpdateDaemonSet type
Deployment = spec=DeploymentSpec status=DeploymentStatus
DeploymentCondition = lastTransitionTime lastUpdateTime message reason status type
DeploymentSpec = minReadySeconds# paused% progressDeadlineSeconds# replicas# revisionHistoryLimit#
  selector:LabelSelector strategy=DeploymentStrategy template=PodTemplateSpec
DeploymentStatus = availableReplicas# collisionCount# conditions[type]:DeploymentCondition observedGeneration#
  readyReplicas# replicas# terminatingReplicas# unavailableReplicas# updatedReplicas#
DeploymentStrategy = rollingUpdate:RollingUpdateDeployment type
DownwardAPIProjection = items[]:DownwardAPIVolumeFile
DownwardAPIVolumeFile = fieldRef:ObjectFieldSelector mode# path resourceFieldRef:ResourceFieldSelector
DownwardAPIVolumeSource = defaultMode# items[]:DownwardAPIVolumeFile
EmptyDirVolumeSource = medium sizeLimit@
EnvFromSource = configMapRef:ConfigMapEnvSource prefix secretRef:SecretEnvSource
EnvVar = name value valueFrom:EnvVarSource
EnvVarSource = configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:FileKeySelector
  resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
EphemeralContainer = args[] command[] env[name]:EnvVar envFrom[]:EnvFromSource image imagePullPolicy
  lifecycle:Lifecycle livenessProbe:Probe name ports[containerPort,protocol=TCP]:ContainerPort readinessProbe:Probe
  resizePolicy[]:ContainerResizePolicy resources=ResourceRequirements restartPolicy
  restartPolicyRules[]:ContainerRestartRule securityContext:SecurityContext startupProbe:Probe stdin% stdinOnce%
  targetContainerName terminationMessagePath terminationMessagePolicy tty% volumeDevices[devicePath]:VolumeDevice
  volumeMounts[mountPath]:VolumeMount workingDir
Event = action deprecatedCount# deprecatedFirstTimestamp deprecatedLastTimestamp deprecatedSource=EventSource
  eventTime note reason regarding=ObjectReference related:ObjectReference reportingController reportingInstance
  series:EventSeries type
EventSeries = count# lastObservedTime
EventSource = component host
ExecAction = command[]
ExternalMetricSource = metric=MetricIdentifier target=MetricTarget
FileKeySelector! = key optional% path volumeName
GRPCAction = port# service
HPAScalingPolicy = periodSeconds# type value#
HPAScalingRules = policies[]:HPAScalingPolicy selectPolicy stabilizationWindowSeconds# tolerance@
HTTPGetAction = host httpHeaders[]:HTTPHeader path port* scheme
HTTPHeader = name value
HorizontalPodAutoscaler = spec=HorizontalPodAutoscalerSpec status=HorizontalPodAutoscalerStatus
HorizontalPodAutoscalerBehavior = scaleDown:HPAScalingRules scaleUp:HPAScalingRules
HorizontalPodAutoscalerCondition = lastTransitionTime message reason status type
HorizontalPodAutoscalerSpec = behavior:HorizontalPodAutoscalerBehavior maxReplicas# metrics[]:MetricSpec minReplicas#
  scaleTargetRef=CrossVersionObjectReference
HorizontalPodAutoscalerStatus = conditions[type]:HorizontalPodAutoscalerCondition currentMetrics[]? currentReplicas#
  desiredReplicas# lastScaleTime observedGeneration#
HostAlias = hostnames[] ip
HostIP = ip
HostPathVolumeSource = path type
Job = spec=JobSpec status=JobStatus
JobCondition = lastProbeTime lastTransitionTime message reason status type
JobSpec = activeDeadlineSeconds# backoffLimit# backoffLimitPerIndex# completionMode completions# managedBy
  manualSelector% maxFailedIndexes# parallelism# podFailurePolicy:PodFailurePolicy podReplacementPolicy
  selector:LabelSelector successPolicy:SuccessPolicy suspend% template=PodTemplateSpec ttlSecondsAfterFinished#
JobStatus = active# completedIndexes completionTime conditions[]:JobCondition failed# failedIndexes ready# startTime
  succeeded# terminating# uncountedTerminatedPods:UncountedTerminatedPods
JobTemplateSpec = metadata=ObjectMeta spec=JobSpec
KeyToPath = key mode# path
LabelSelector! = matchExpressions[]:LabelSelectorRequirement matchLabels<>
LabelSelectorRequirement = key operator values[]
Lease = spec=LeaseSpec
LeaseSpec = acquireTime holderIdentity leaseDurationSeconds# leaseTransitions# preferredHolder renewTime strategy
Lifecycle = postStart:LifecycleHandler preStop:LifecycleHandler stopSignal
LifecycleHandler = exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction
LimitRange = spec=LimitRangeSpec
LimitRangeItem = default<>@ defaultRequest<>@ max<>@ maxLimitRequestRatio<>@ min<>@ type
LimitRangeSpec = limits[]:LimitRangeItem
LinuxContainerUser = gid# supplementalGroups[]# uid#
LocalObjectReference! = name
ManagedFieldsEntry = apiVersion fieldsType fieldsV1? manager operation subresource time
MetricIdentifier = name selector:LabelSelector
MetricSpec = containerResource:ContainerResourceMetricSource external:ExternalMetricSource object:ObjectMetricSource
  pods:PodsMetricSource resource:ResourceMetricSource type
MetricTarget = averageUtilization# averageValue@ type value@
Namespace = spec=NamespaceSpec status=NamespaceStatus
NamespaceCondition = lastTransitionTime message reason status type
NamespaceSpec = finalizers[]
NamespaceStatus = conditions[type]:NamespaceCondition phase
Node = spec=NodeSpec status=NodeStatus
NodeAddress = address type
NodeAffinity = preferredDuringSchedulingIgnoredDuringExecution[]:PreferredSchedulingTerm
  requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
NodeCondition = lastHeartbeatTime lastTransitionTime message reason status type
NodeDaemonEndpoints = kubeletEndpoint=DaemonEndpoint
NodeFeatures = supplementalGroupsPolicy%
NodeRuntimeHandler = features:NodeRuntimeHandlerFeatures name
NodeRuntimeHandlerFeatures = recursiveReadOnlyMounts% userNamespaces%
NodeSelector! = nodeSelectorTerms[]:NodeSelectorTerm
NodeSelectorRequirement = key operator values[]
NodeSelectorTerm! = matchExpressions[]:NodeSelectorRequirement matchFields[]:NodeSelectorRequirement
NodeSpec = configSource? externalID podCIDR podCIDRs[*] providerID taints[]:Taint unschedulable%
NodeStatus = addresses[type]:NodeAddress allocatable<>@ capacity<>@ conditions[type]:NodeCondition config?
  daemonEndpoints=NodeDaemonEndpoints declaredFeatures[] features:NodeFeatures images[]:ContainerImage
  nodeInfo=NodeSystemInfo phase runtimeHandlers[]:NodeRuntimeHandler volumesAttached[]:AttachedVolume volumesInUse[]
NodeSwapStatus = capacity#
NodeSystemInfo = architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion kubeletVersion machineID
  operatingSystem osImage swap:NodeSwapStatus systemUUID
ObjectFieldSelector! = apiVersion fieldPath
ObjectMeta = annotations<> creationTimestamp deletionGracePeriodSeconds# deletionTimestamp finalizers[*] generateName
  generation# labels<> managedFields[]:ManagedFieldsEntry name namespace ownerReferences[uid]:OwnerReference
  resourceVersion selfLink uid
ObjectMetricSource = describedObject=CrossVersionObjectReference metric=MetricIdentifier target=MetricTarget
ObjectReference! = apiVersion fieldPath kind name namespace resourceVersion uid
OwnerReference! = apiVersion blockOwnerDeletion% controller% kind name uid
PersistentVolume = spec? status?
PersistentVolumeClaim = spec? status?
PersistentVolumeClaimVolumeSource = claimName readOnly%
Pod = spec=PodSpec status=PodStatus
PodAffinity = preferredDuringSchedulingIgnoredDuringExecution[]:WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution[]:PodAffinityTerm
PodAffinityTerm = labelSelector:LabelSelector matchLabelKeys[] mismatchLabelKeys[] namespaceSelector:LabelSelector
  namespaces[] topologyKey
PodAntiAffinity = preferredDuringSchedulingIgnoredDuringExecution[]:WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution[]:PodAffinityTerm
PodCondition = lastProbeTime lastTransitionTime message observedGeneration# reason status type
PodDNSConfig = nameservers[] options[]:PodDNSConfigOption searches[]
PodDNSConfigOption = name value
PodDisruptionBudget = spec=PodDisruptionBudgetSpec status=PodDisruptionBudgetStatus
PodDisruptionBudgetSpec = maxUnavailable* minAvailable* selector:LabelSelector unhealthyPodEvictionPolicy
PodDisruptionBudgetStatus = conditions[type]:Condition currentHealthy# desiredHealthy# disruptedPods<>
  disruptionsAllowed# expectedPods# observedGeneration#
PodExtendedResourceClaimStatus = requestMappings[]:ContainerExtendedResourceRequest resourceClaimName
PodFailurePolicy = rules[]:PodFailurePolicyRule
PodFailurePolicyOnExitCodesRequirement = containerName operator values[*]#
PodFailurePolicyOnPodConditionsPattern = status type
PodFailurePolicyRule = action onExitCodes:PodFailurePolicyOnExitCodesRequirement
  onPodConditions[]:PodFailurePolicyOnPodConditionsPattern
PodIP = ip
PodOS = name
PodReadinessGate = conditionType
PodResourceClaim = name resourceClaimName resourceClaimTemplateName
PodResourceClaimStatus = name resourceClaimName
PodSchedulingGate = name
PodSecurityContext = appArmorProfile:AppArmorProfile fsGroup# fsGroupChangePolicy runAsGroup# runAsNonRoot% runAsUser#
  seLinuxChangePolicy seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile supplementalGroups[]#
  supplementalGroupsPolicy sysctls[]:Sysctl windowsOptions:WindowsSecurityContextOptions
PodSpec = activeDeadlineSeconds# affinity:Affinity automountServiceAccountToken% containers[name]:Container
  dnsConfig:PodDNSConfig dnsPolicy enableServiceLinks% ephemeralContainers[name]:EphemeralContainer
  hostAliases[ip]:HostAlias hostIPC% hostNetwork% hostPID% hostUsers% hostname hostnameOverride
  imagePullSecrets[name]:LocalObjectReference initContainers[name]:Container nodeName nodeSelector<> os:PodOS
  overhead<>@ preemptionPolicy priority# priorityClassName readinessGates[]:PodReadinessGate
  resourceClaims[name]:PodResourceClaim resources:ResourceRequirements restartPolicy runtimeClassName schedulerName
  schedulingGates[name]:PodSchedulingGate securityContext:PodSecurityContext serviceAccount serviceAccountName
  setHostnameAsFQDN% shareProcessNamespace% subdomain terminationGracePeriodSeconds# tolerations[]:Toleration
  topologySpreadConstraints[topologyKey,whenUnsatisfiable]:TopologySpreadConstraint volumes[name]:Volume
  workloadRef:WorkloadReference
PodStatus = allocatedResources<>@ conditions[type]:PodCondition containerStatuses[]:ContainerStatus
  ephemeralContainerStatuses[]:ContainerStatus extendedResourceClaimStatus:PodExtendedResourceClaimStatus hostIP
  hostIPs[]:HostIP initContainerStatuses[]:ContainerStatus message nominatedNodeName observedGeneration# phase podIP
  podIPs[ip]:PodIP qosClass reason resize resourceClaimStatuses[name]:PodResourceClaimStatus
  resources:ResourceRequirements startTime
PodTemplateSpec = metadata=ObjectMeta spec=PodSpec
PodsMetricSource = metric=MetricIdentifier target=MetricTarget
PreferredSchedulingTerm = preference=NodeSelectorTerm weight#
PriorityClass = description globalDefault% preemptionPolicy value#
Probe = exec:ExecAction failureThreshold# grpc:GRPCAction httpGet:HTTPGetAction initialDelaySeconds# periodSeconds#
  successThreshold# tcpSocket:TCPSocketAction terminationGracePeriodSeconds# timeoutSeconds#
ProjectedVolumeSource = defaultMode# sources[]:VolumeProjection
ReplicaSet = spec=ReplicaSetSpec status=ReplicaSetStatus
ReplicaSetCondition = lastTransitionTime message reason status type
ReplicaSetSpec = minReadySeconds# replicas# selector:LabelSelector template=PodTemplateSpec
ReplicaSetStatus = availableReplicas# conditions[type]:ReplicaSetCondition fullyLabeledReplicas# observedGeneration#
  readyReplicas# replicas# terminatingReplicas#
ResourceClaim = name request
ResourceFieldSelector! = containerName divisor@ resource
ResourceHealth = health resourceID
ResourceMetricSource = name target=MetricTarget
ResourceQuota = spec=ResourceQuotaSpec status=ResourceQuotaStatus
ResourceQuotaSpec = hard<>@ scopeSelector:ScopeSelector scopes[]
ResourceQuotaStatus = hard<>@ used<>@
ResourceRequirements = claims[name]:ResourceClaim limits<>@ requests<>@
ResourceStatus = name resources[resourceID]:ResourceHealth
RollingUpdateDaemonSet = maxSurge* maxUnavailable*
RollingUpdateDeployment = maxSurge* maxUnavailable*
RollingUpdateStatefulSetStrategy = maxUnavailable* partition#
SELinuxOptions = level role type user
ScopeSelector! = matchExpressions[]:ScopedResourceSelectorRequirement
ScopedResourceSelectorRequirement = operator scopeName values[]
SeccompProfile = localhostProfile type
Secret = data<> immutable% stringData<> type
SecretEnvSource = name optional%
SecretKeySelector! = key name optional%
SecretProjection = items[]:KeyToPath name optional%
SecretVolumeSource = defaultMode# items[]:KeyToPath optional% secretName
SecurityContext = allowPrivilegeEscalation% appArmorProfile:AppArmorProfile capabilities:Capabilities privileged%
  procMount readOnlyRootFilesystem% runAsGroup# runAsNonRoot% runAsUser# seLinuxOptions:SELinuxOptions
  seccompProfile:SeccompProfile windowsOptions:WindowsSecurityContextOptions
ServiceAccount = automountServiceAccountToken% imagePullSecrets[]:LocalObjectReference secrets[name]:ObjectReference
ServiceAccountTokenProjection = audience expirationSeconds# path
SleepAction = seconds#
StatefulSet = spec=StatefulSetSpec status=StatefulSetStatus
StatefulSetCondition = lastTransitionTime message reason status type
StatefulSetOrdinals = start#
StatefulSetPersistentVolumeClaimRetentionPolicy = whenDeleted whenScaled
StatefulSetSpec = minReadySeconds# ordinals:StatefulSetOrdinals
  persistentVolumeClaimRetentionPolicy:StatefulSetPersistentVolumeClaimRetentionPolicy podManagementPolicy replicas#
  revisionHistoryLimit# selector:LabelSelector serviceName template=PodTemplateSpec
  updateStrategy=StatefulSetUpdateStrategy volumeClaimTemplates[]?
StatefulSetStatus = availableReplicas# collisionCount# conditions[type]:StatefulSetCondition currentReplicas#
  currentRevision observedGeneration# readyReplicas# replicas# updateRevision updatedReplicas#
StatefulSetUpdateStrategy = rollingUpdate:RollingUpdateStatefulSetStrategy type
SuccessPolicy = rules[]:SuccessPolicyRule
SuccessPolicyRule = succeededCount# succeededIndexes
Sysctl = name value
TCPSocketAction = host port*
Taint = effect key timeAdded value
Toleration = effect key operator tolerationSeconds# value
TopologySpreadConstraint = labelSelector:LabelSelector matchLabelKeys[] maxSkew# minDomains# nodeAffinityPolicy
  nodeTaintsPolicy topologyKey whenUnsatisfiable
UncountedTerminatedPods = failed[*] succeeded[*]
Volume = awsElasticBlockStore? azureDisk? azureFile? cephfs? cinder? configMap:ConfigMapVolumeSource csi?
  downwardAPI:DownwardAPIVolumeSource emptyDir:EmptyDirVolumeSource ephemeral? fc? flexVolume? flocker?
  gcePersistentDisk? gitRepo? glusterfs? hostPath:HostPathVolumeSource image? iscsi? name nfs?
  persistentVolumeClaim:PersistentVolumeClaimVolumeSource photonPersistentDisk? portworxVolume?
  projected:ProjectedVolumeSource quobyte? rbd? scaleIO? secret:SecretVolumeSource storageos? vsphereVolume?
VolumeDevice = devicePath name
VolumeMount = mountPath mountPropagation name readOnly% recursiveReadOnly subPath subPathExpr
VolumeMountStatus = mountPath name readOnly% recursiveReadOnly
VolumeProjection = clusterTrustBundle? configMap:ConfigMapProjection downwardAPI:DownwardAPIProjection podCertificate?
  secret:SecretProjection serviceAccountToken:ServiceAccountTokenProjection
WeightedPodAffinityTerm = podAffinityTerm=PodAffinityTerm weight#
WindowsSecurityContextOptions = gmsaCredentialSpec gmsaCredentialSpecName hostProcess% runAsUserName
WorkloadReference = name podGroup podGroupReplicaKey
CustomResourceDefinition = spec:CustomResourceDefinitionSpec status?
CustomResourceDefinitionSpec = conversion? group names:CustomResourceDefinitionNames preserveUnknownFields% scope
  versions[]?
CustomResourceDefinitionNames = categories[] kind listKind plural shortNames[] singular
"""
