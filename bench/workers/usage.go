package workers

import (
	"fmt"

	"github.com/prometheus/procfs"
)

const mib = 1 << 20

// used is what a process has used.
type used struct {
	cpu      float64 // Seconds of processors, since it began.
	resident float64 // MiB, of now.
}

// usage returns what the process of each node has used.
func usage(nodes []Node) ([]used, error) {
	out := make([]used, len(nodes))
	for i, n := range nodes {
		process, err := procfs.NewProc(n.PID)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.URL, err)
		}
		stat, err := process.Stat()
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.URL, err)
		}
		out[i] = used{cpu: stat.CPUTime(), resident: float64(stat.ResidentMemory()) / mib}
	}
	return out, nil
}
