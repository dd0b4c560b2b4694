package packing

import (
	"path/filepath"
	"strings"

	"berth/bench/trace"
)

// The cluster of the published figures.
const (
	publishedNodes = 1213
	publishedGPUs  = 6212
)

// Published holds published results for a trace: the means over ten seeds that
// the artifact of the FGD paper recorded, and two limits of the trace itself.
type Published struct {
	Trace    string             `json:"trace"`
	Alloc100 map[string]float64 `json:"alloc_100_pct"` // By policy.
	// Bound is the upper limit for any scheduler at 100 % arrived, even with
	// migration and knowledge of the future. It is the optimum of a linear
	// program in which pods may be split and the nodes of a hardware type are
	// one, but a share fits one device.
	Bound float64 `json:"bound_pct"`
	// RefusalFree is the load beyond which every scheduler must refuse. It
	// excludes the pods that no node could host.
	RefusalFree float64 `json:"refusal_free_pct"`
}

// published returns the published results for the trace in a file of this name
// on these nodes, nil for none.
func published(path string, nodes []trace.Node) *Published {
	gpus := 0
	for i := range nodes {
		gpus += nodes[i].GPUs
	}
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "openb_pod_list_"), ".csv")
	row, known := publishedRows()[name]
	if !known || len(nodes) != publishedNodes || gpus != publishedGPUs {
		return nil
	}
	return &Published{
		Trace: name, Bound: row[6], RefusalFree: row[7],
		Alloc100: map[string]float64{
			Random: row[0], DotProduct: row[1], Clustering: row[2], Packing: row[3], BestFit: row[4], FGD: row[5],
		},
	}
}

// publishedRows returns a row for each trace: the GPU allocation in percent at
// 100 % arrived of random, dot-product, clustering, packing, best-fit and FGD,
// the bound and the limit without refusals. The allocations are the means of
// analysis_allo_discrete.csv of the artifact.
func publishedRows() map[string][8]float64 {
	return map[string][8]float64{
		"default":     {86.30, 90.62, 91.65, 91.78, 92.86, 95.23, 96.90, 96.32},
		"multigpu20":  {86.92, 91.85, 93.34, 93.50, 93.73, 95.53, 97.34, 96.82},
		"multigpu30":  {86.63, 93.11, 94.55, 94.70, 94.57, 96.36, 97.67, 97.20},
		"multigpu40":  {85.38, 94.04, 95.35, 95.59, 95.10, 96.91, 98.00, 97.59},
		"multigpu50":  {81.28, 94.73, 95.69, 96.06, 95.62, 97.09, 98.34, 97.99},
		"gpushare40":  {84.86, 89.30, 89.76, 89.77, 91.44, 93.96, 95.65, 94.89},
		"gpushare60":  {82.81, 86.82, 86.90, 87.15, 89.06, 91.25, 93.35, 92.41},
		"gpushare80":  {80.62, 84.14, 84.50, 84.65, 86.66, 89.08, 91.40, 90.40},
		"gpushare100": {78.90, 81.98, 82.22, 82.13, 84.62, 86.64, 89.16, 88.20},
		"gpuspec10":   {86.26, 90.17, 91.96, 92.24, 93.10, 94.66, 96.85, 96.56},
		"gpuspec20":   {85.90, 88.29, 89.11, 89.28, 88.46, 94.66, 96.90, 96.32},
		"gpuspec25":   {85.42, 85.44, 86.41, 86.77, 85.67, 93.91, 96.88, 96.44},
		"gpuspec33":   {83.87, 79.82, 81.09, 82.22, 80.39, 87.84, 96.40, 76.73},
		"cpu050":      {89.02, 93.03, 93.52, 93.46, 93.56, 95.00, 96.90, 96.32},
		"cpu100":      {87.44, 91.73, 92.42, 92.50, 93.26, 95.21, 96.90, 96.32},
		"cpu200":      {83.03, 87.45, 89.67, 89.98, 92.15, 94.82, 96.90, 96.32},
		"cpu250":      {80.00, 83.57, 87.75, 88.05, 91.21, 93.20, 96.90, 96.32},
	}
}
