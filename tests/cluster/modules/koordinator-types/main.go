// Koordinator's own Go types as readers of what cotenant writes: JSON lines {"kind", "body"} in, one line out for each,
// the body as Koordinator's types write it again, or why they cannot read it. Fields that they do not know are refused.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/koordinator-sh/koordinator/apis/extension"
	"github.com/koordinator-sh/koordinator/apis/scheduling/v1alpha1"
)

type line struct {
	Kind  string          `json:"kind,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
	Error string          `json:"error,omitempty"`
}

var kinds = map[string]func() any{
	"Device":                func() any { return &v1alpha1.Device{} },
	"device-allocated":      func() any { return &extension.DeviceAllocations{} },
	"device-allocate-hint":  func() any { return &extension.DeviceAllocateHints{} },
	"device-joint-allocate": func() any { return &extension.DeviceJointAllocate{} },
	"gpu-partition-spec":    func() any { return &extension.GPUPartitionSpec{} },
	"gpu-partitions":        func() any { return &extension.GPUPartitionTable{} },
	"resource-spec":         func() any { return &extension.ResourceSpec{} },
	"resource-status":       func() any { return &extension.ResourceStatus{} },
	"cpu-topology":          func() any { return &extension.CPUTopology{} },
	"pod-cpu-allocs":        func() any { return &extension.PodCPUAllocs{} },
	"cpu-shared-pools":      func() any { return &[]extension.CPUSharedPool{} },
	"cpu-manager-policy":    func() any { return &extension.KubeletCPUManagerPolicy{} },
	"numa-topology-spec":    func() any { return &extension.NUMATopologySpec{} },
}

func main() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for in.More() {
		var one line
		if err := in.Decode(&one); err != nil {
			panic(err)
		}
		if err := out.Encode(read(one)); err != nil {
			panic(err)
		}
	}
}

func read(one line) line {
	create, known := kinds[one.Kind]
	if !known {
		return line{Error: fmt.Sprintf("no kind %q", one.Kind)}
	}
	value := create()
	reader := json.NewDecoder(bytes.NewReader(one.Body))
	reader.DisallowUnknownFields()
	if err := reader.Decode(value); err != nil {
		return line{Error: err.Error()}
	}
	body, err := json.Marshal(value)
	if err != nil {
		return line{Error: err.Error()}
	}
	return line{Body: body}
}
