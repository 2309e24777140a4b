"""What a stolen token could still do with each right to write, after RBAC and the policies: for docs/rights.md.

A test compares the keys with the rules of deploy/rbac: a right without a sentence is an error, and so is the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cotenant.base.kubernetes.protocol import EXTENDER, MANAGER, NODE_AGENT, RECORDER, UNINSTALL, WEBHOOK

_FALSE_NOTES: Final = "Write false Events, which people read and nothing acts on."

LEFT: Final[Mapping[tuple[str, str], str]] = {
    (NODE_AGENT, "nodes"): "Say a wrong suppressed fraction of the one node that the token belongs to.",
    (NODE_AGENT, "pods/eviction"): "Evict best-effort pods of its own node, within disruption budgets.",
    (NODE_AGENT, "events"): _FALSE_NOTES,
    (NODE_AGENT, "resourceslices"): "Offer devices of its own node that do not exist: claims on them fail there.",
    (NODE_AGENT, "devices"): "Report wrong GPUs of its own node.",
    (NODE_AGENT, "nodemetrics"): "Change how its own node is measured.",
    (
        NODE_AGENT,
        "nodemetrics/status",
    ): "Report wrong usage of its own node: too much or too little of it is lent, within the node's size.",
    (NODE_AGENT, "noderesourcetopologies"): "Report wrong CPUs of its own node.",
    (EXTENDER, "pods/binding"): "Bind any waiting pod outside of kube-system to a node of its choice, past the rules "
    "of schedulers: a Binding does not say which scheduler its pod asked for. Leave the right out where no pod has "
    "cotenant.dev/bind.",
    (EXTENDER, "nodeallocations"): "Note CPUs and devices as given to pods that have none: later pods get others.",
    (
        MANAGER,
        "pods",
    ): "Hold free capacity with placeholders, which push nobody aside, delete them, and let pods behind our "
    "gates go early or to another node.",
    (MANAGER, "pods/status"): "Nominate a waiting pod to another node.",
    (MANAGER, "pods/eviction"): "Evict pods that are not critical and not in kube-system, within disruption budgets. "
    "Only where queues or the descheduler are installed.",
    (MANAGER, "configmaps"): "Say a wrong state of our features, publish wrong forecasts, and move the head of the "
    "ledger, which `cotenant audit verify` then finds.",
    (MANAGER, "leases"): "Keep the manager from leading.",
    (MANAGER, "nodes"): "Keep pods away from nodes by our two taints, and take those taints away.",
    (MANAGER, "nodes/status"): "Lend more or less batch and mid capacity than is free, at most what the node has.",
    (MANAGER, "recommendations"): "Write false recommendations, which nobody applies without guardrails.",
    (MANAGER, "recommendations/status"): "The same.",
    (MANAGER, "horizontalpodautoscalers"): "Raise floors up to maxReplicas and move utilisation targets up to 100 %.",
    (MANAGER, "capacitybuffers"): "Ask an autoscaler for nodes, up to its own limits, and take others' requests away.",
    (MANAGER, "autopilotpolicies/status"): "Say falsely what the autopilot did.",
    (
        MANAGER,
        "reservationplans",
    ): "Propose plans, and spoil those of others; none without a person's approval reserves "
    "anything. Of an approved plan, move windows and pods, within the share that all plans may reserve.",
    (MANAGER, "reservationplans/status"): "Say falsely how a plan is.",
    (MANAGER, "swapguards"): "Keep all other pods off nodes for up to half an hour at a time.",
    (MANAGER, "usageforecasts"): "Publish wrong forecasts of nodes, which move scores and lent capacity, not requests.",
    (MANAGER, "events"): _FALSE_NOTES,
    (MANAGER, "podgroups"): "Write a wrong state of gangs, and make PodGroups that no pod names.",
    (MANAGER, "priorityclasses"): "Make classes named cotenant-below-*, which preempt nobody and are nobody's default.",
    (MANAGER, "podmigrationjobs"): "Ask for moves, which pass the same evictions, and withdraw those of others.",
    (MANAGER, "podmigrationjobs/status"): "Say falsely how far a move is.",
    (MANAGER, "reservations"): "Reserve capacity within what placeholders may, and release what is reserved.",
    (MANAGER, "reservations/status"): "Say falsely who has reserved capacity.",
    (MANAGER, "elasticquotas"): "Write a wrong use and runtime of quotas, and resize quotas that profiles made.",
    (MANAGER, "nodemetrics"): "Say wrong usage of nodes: too much or too little is lent, within the node's size.",
    (MANAGER, "nodemetrics/status"): "The same.",
    (MANAGER, "nodeslos"): "Switch strategies of the node agents on or off; the agents never take what pods request.",
    (MANAGER, "nodeslos/status"): "Nothing reads it.",
    (MANAGER, "noderesourcetopologies"): "Write wrong amounts of NUMA zones.",
    (
        UNINSTALL,
        "reservations/status",
    ): "Say of Reservations that they are pending, which the manager says right again while one runs.",
    (UNINSTALL, "pods"): "Delete placeholders, let pods behind our gates go. The account exists while the hook runs.",
    (UNINSTALL, "configmaps"): "Delete two ConfigMaps of ours, by name.",
    (RECORDER, "leases"): "Keep the recorder from recording.",
    (UNINSTALL, "leases"): "Delete the manager's Lease.",
    (UNINSTALL, "nodes"): "Take our two taints away.",
    (UNINSTALL, "nodes/status"): "Take the batch and mid amounts of nodes away.",
    (UNINSTALL, "horizontalpodautoscalers"): "Give autoscalers the floor back that we raised.",
    (UNINSTALL, "capacitybuffers"): "Delete CapacityBuffers, others' too: Kubernetes grants no deletion by label.",
    (UNINSTALL, "noderesourcetopologies"): "Write wrong amounts of NUMA zones.",
    (WEBHOOK, "secrets"): "Replace the webhook's own certificate, so that pods are admitted without us.",
    (WEBHOOK, "pods"): "Let waiting pods of our gates go early.",
    (WEBHOOK, "mutatingwebhookconfigurations"): "Break the webhook's own certificate authority, with the same effect.",
    (WEBHOOK, "validatingwebhookconfigurations"): "The same.",
    (WEBHOOK, "swapguards"): "Take entries of hand-overs away, so that another pod may get the capacity.",
    (WEBHOOK, "events"): _FALSE_NOTES,
    (WEBHOOK, "podgroups"): "Make PodGroups that no pod names.",
}
"""(account, resource) -> a sentence."""
