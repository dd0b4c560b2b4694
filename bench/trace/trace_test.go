package trace_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth/bench/trace"
)

func mustWrite(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadNodes(t *testing.T) {
	path := mustWrite(t, "\ufeffSN, gpu,cpu_milli,memory_mib,model,rack\n"+
		"a,8,96000,393216,G2,7\n"+
		"\"b\",0,64000,262144,none,8\n")
	got, err := trace.ReadNodes(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Node{
		{Name: "a", CPUMilli: 96000, MemoryMiB: 393216, GPUs: 8, Model: "G2"},
		{Name: "b", CPUMilli: 64000, MemoryMiB: 262144},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("nodes %+v, want %+v", got, want)
	}
}

func TestReadPods(t *testing.T) {
	path := mustWrite(t, "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,"+
		"scheduled_time,org,priority\n"+
		"p,1000,2,1,460,v100m16| T4 |,LS,10,100,40,research,7\n"+
		"q,1000,2,0,0,,BE,10,15.5,,,\n"+
		"r,1000,2,8,1000,,BE,10,,,,\n")
	got, err := trace.ReadPods(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Pod{
		{
			Name: "p", CPUMilli: 1000, MemoryMiB: 2, GPUs: 1, GPUMilli: 460, Models: []string{"V100M16", "T4"},
			QoS: "LS", Created: 10 * time.Second, Duration: time.Minute, Org: "research", Priority: 7,
		},
		{
			Name: "q", CPUMilli: 1000, MemoryMiB: 2, QoS: "BE", Created: 10 * time.Second,
			Duration: 5500 * time.Millisecond,
		},
		{
			Name: "r", CPUMilli: 1000, MemoryMiB: 2, GPUs: 8, GPUMilli: 1000, QoS: "BE", Created: 10 * time.Second,
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("pods %+v, want %+v", got, want)
	}
}

// TestOptionalColumns checks that a trace with five columns is enough.
func TestOptionalColumns(t *testing.T) {
	got, err := trace.ReadPods(mustWrite(t, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,2,2,1000\n"))
	want := []trace.Pod{{Name: "p", CPUMilli: 1000, MemoryMiB: 2, GPUs: 2, GPUMilli: 1000}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("pods %+v, error %v; want %+v", got, err, want)
	}
}

func TestBadFiles(t *testing.T) {
	nodes := "sn,cpu_milli,memory_mib,gpu,model\n"
	pods := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"
	readNodes := func(path string) error { _, err := trace.ReadNodes(path); return err }
	readPods := func(path string) error { _, err := trace.ReadPods(path); return err }
	tests := []struct {
		name, text string
		read       func(string) error
		want       string
	}{
		{"empty", "", readNodes, "trace.csv: empty; the first line names the columns sn,cpu_milli,memory_mib,gpu"},
		{"header alone", nodes, readNodes, "trace.csv: no rows behind the header"},
		{
			"missing column", "sn,cpu_milli,gpu\na,1,2\n", readNodes,
			"trace.csv:1: no column memory_mib; it needs sn,cpu_milli,memory_mib,gpu and has cpu_milli,gpu,sn",
		},
		{"short row", nodes + "a,1,2\n", readNodes, "trace.csv:2:1: wrong number of fields"},
		{"bare quote", nodes + "a,1\"0,2,1,x\n", readNodes, "trace.csv:2:4: bare \" in non-quoted-field"},
		{
			"no number", nodes + "a,1,2,1,x\nb,1,2.5,1,x\n", readNodes,
			"trace.csv:3:5: column memory_mib: \"2.5\" is not a whole number from 0 to 2147483647",
		},
		{"negative", nodes + "a,-1,2,1,x\n", readNodes, "trace.csv:2:3: column cpu_milli: \"-1\" is not"},
		{"absurd", nodes + "a,1,2,65,x\n", readNodes, "trace.csv:2:7: column gpu: \"65\" is not a whole number from 0 to 64"},
		{"no name", nodes + ",1,2,1,x\n", readNodes, "trace.csv:2:1: column sn: a node needs a name"},
		{
			"same name", nodes + "a,1,2,1,x\na,3,4,1,x\n", readNodes,
			"trace.csv:3:1: column sn: \"a\" is in line 2 already",
		},
		{"share without GPU", pods + "p,1,2,0,500,,\n", readPods, "trace.csv:2:9: column gpu_milli: 500 without a GPU"},
		{"GPU without share", pods + "p,1,2,1,0,,\n", readPods, "column gpu_milli: 0 of each of 1 GPUs"},
		{"share of many", pods + "p,1,2,2,500,,\n", readPods, "column gpu_milli: 500 of each of 2 GPUs; only a single GPU"},
		{"more than whole", pods + "p,1,2,1,1001,,\n", readPods, "column gpu_milli: \"1001\" is not a whole number from 0 to 1000"},
		{"no time", pods + "p,1,2,1,1,then,\n", readPods, "column creation_time: \"then\" is not a time in seconds"},
		{"not a number", pods + "p,1,2,1,1,NaN,\n", readPods, "column creation_time: \"NaN\" is not a time in seconds"},
		{"backwards", pods + "p,1,2,1,1,10,4\n", readPods, "column deletion_time: it ended 6s before it began"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.read(mustWrite(t, tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	if err := readNodes(filepath.Join(t.TempDir(), "none.csv")); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: error %v", err)
	}
}
