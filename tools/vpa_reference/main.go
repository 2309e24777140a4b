// Command vpa_reference answers, one JSON line in, one JSON line out, what Kubernetes' own packages say:
// {"quantity": text} through apimachinery's parser, and {"containers": [...]} through the recommender of the
// Vertical Pod Autoscaler; with "savedUntil": seconds, its CPU samples through a checkpoint. bench/vpa_exact.py compares our answers with it; nothing of the product needs it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

// series is one pod's container: samples in time order as [unix seconds, amount]; CPU in millicores, memory in bytes,
// OOM kills as [unix seconds, memory request in bytes].
type series struct {
	CPU    [][2]int64 `json:"cpu"`
	Memory [][2]int64 `json:"memory"`
	Kills  [][2]int64 `json:"kills"`
}

type question struct {
	Quantity   *json.RawMessage    `json:"quantity"`
	Containers map[string][]series `json:"containers"`
	SavedUntil int64               `json:"savedUntil"`
}

// restarted is the answer of a recommender that wrote its checkpoints after the samples until a moment, started anew
// from them, and saw the other samples.
type restarted struct {
	Checkpoints map[string]*types.VerticalPodAutoscalerCheckpointStatus `json:"checkpoints"`
	Bounds      map[string]bounds                                       `json:"bounds"`
}

type amounts struct {
	CPU    int64 `json:"cpu"`
	Memory int64 `json:"memory"`
}

type bounds struct {
	Target amounts `json:"target"`
	Lower  amounts `json:"lower"`
	Upper  amounts `json:"upper"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<28)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		answer, err := json.Marshal(answer(q))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintln(out, string(answer))
	}
}

func answer(q question) any {
	if q.Quantity != nil {
		return quantity(*q.Quantity)
	}
	states := model.ContainerNameToAggregateStateMap{}
	if q.SavedUntil > 0 {
		checkpoints := map[string]*types.VerticalPodAutoscalerCheckpointStatus{}
		for name, pods := range q.Containers {
			checkpoints[name], states[name] = restart(pods, q.SavedUntil)
		}
		return restarted{checkpoints, recommend(states)}
	}
	for name, pods := range q.Containers {
		states[name] = model.NewAggregateContainerState()
		aggregate(states[name], pods)
	}
	return recommend(states)
}

func restart(
	pods []series, until int64,
) (*types.VerticalPodAutoscalerCheckpointStatus, *model.AggregateContainerState) {
	before, after := make([]series, len(pods)), make([]series, len(pods))
	for i, pod := range pods {
		for _, sample := range pod.CPU {
			if sample[0] <= until {
				before[i].CPU = append(before[i].CPU, sample)
			} else {
				after[i].CPU = append(after[i].CPU, sample)
			}
		}
	}
	first, second := model.NewAggregateContainerState(), model.NewAggregateContainerState()
	aggregate(first, before)
	checkpoint, err := first.SaveToCheckpoint()
	if err == nil {
		err = second.LoadFromCheckpoint(checkpoint)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	aggregate(second, after)
	return checkpoint, second
}

// quantity gives [value, milli value, sign], or null for what the API server refuses.
func quantity(raw json.RawMessage) any {
	var q resource.Quantity
	if err := q.UnmarshalJSON(raw); err != nil {
		return nil
	}
	return []int64{q.Value(), q.MilliValue(), int64(q.Sign())}
}

func aggregate(state *model.AggregateContainerState, pods []series) {
	for _, pod := range pods {
		container := model.NewContainerState(model.Resources{}, state)
		for _, sample := range pod.CPU {
			add(container, sample, model.ResourceCPU)
		}
		kills := pod.Kills
		for _, sample := range pod.Memory {
			for len(kills) > 0 && kills[0][0] <= sample[0] {
				kill(container, kills[0])
				kills = kills[1:]
			}
			add(container, sample, model.ResourceMemory)
		}
		for _, left := range kills {
			kill(container, left)
		}
	}
}

func add(container *model.ContainerState, sample [2]int64, name model.ResourceName) {
	container.AddSample(&model.ContainerUsageSample{
		MeasureStart: time.Unix(sample[0], 0).UTC(),
		Usage:        model.ResourceAmount(sample[1]),
		Resource:     name,
	})
}

func kill(container *model.ContainerState, at [2]int64) {
	if err := container.RecordOOM(time.Unix(at[0], 0).UTC(), model.ResourceAmount(at[1])); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// recommend asks with the recommender's default flags.
func recommend(states model.ContainerNameToAggregateStateMap) map[string]bounds {
	day := 24 * time.Hour
	recommender := logic.CreatePodResourceRecommender(logic.RecommendationConfig{
		SafetyMarginFraction:       0.15,
		PodMinCPUMillicores:        25,
		PodMinMemoryMb:             250,
		TargetCPUPercentile:        0.9,
		LowerBoundCPUPercentile:    0.5,
		UpperBoundCPUPercentile:    0.95,
		ConfidenceIntervalCPU:      day,
		TargetMemoryPercentile:     0.9,
		LowerBoundMemoryPercentile: 0.5,
		UpperBoundMemoryPercentile: 0.95,
		ConfidenceIntervalMemory:   day,
	})
	answers := map[string]bounds{}
	for name, found := range recommender.GetRecommendedPodResources(states) {
		answers[name] = bounds{plain(found.Target), plain(found.LowerBound), plain(found.UpperBound)}
	}
	return answers
}

func plain(found model.Resources) amounts {
	return amounts{int64(found[model.ResourceCPU]), int64(found[model.ResourceMemory])}
}
