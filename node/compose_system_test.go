package node_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dockerclient "github.com/moby/moby/client"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/executor/docker/dockertest"
	"berth/node/executor/supervise"
	"berth/node/nodetest"
	berth "berth/sdk/go"
	"berth/testsize"
)

const storageText = `
services:
  writer:
    image: ${IMAGE}
    command: [write, /mnt/s3/composed, "0"]
  reader:
    image: ${IMAGE}
    command: [read, /mnt/s3/in/text]
    depends_on: {writer: {condition: service_completed_successfully}}
`

// checkComposeStorage reads and writes stored files in the services of a Compose file, which
// have them when they ask for them. Nothing of a service may be in their place.
func checkComposeStorage(t *testing.T, api *client.Client) {
	on := true
	start := client.StartCompose{File: storageText}
	start.Env, start.EnableS3Mount = map[string]string{"IMAGE": dockertest.Image}, &on
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || !strings.Contains(e.Stdout, "| stored") || e.S3MountPath == nil || *e.S3MountPath != "/mnt/s3" {
		t.Errorf("it ended as %s %v with %q %q, mounted at %v", e.Status, e.Errors, e.Stdout, e.Stderr, e.S3MountPath)
	}
	if files, _, err := api.Files(t.Context(), "composed", "", 0); err != nil || len(files) != 1 {
		t.Errorf("it left %+v, %v", files, err)
	}
	start.File = strings.Replace(storageText, "    depends_on", "    tmpfs: [/mnt]\n    depends_on", 1)
	if _, err := api.SubmitCompose(t.Context(), start); err == nil || !strings.Contains(err.Error(), "a volume at /mnt") {
		t.Errorf("a service with a directory in the way: %v", err)
	}
}

const composeText = `
services:
  ready:
    image: ${IMAGE}
    command: [print, ready, $GREETING]
  worker:
    image: ${IMAGE}
    command: [write, /data/file, "0"]
    volumes: [data:/data]
    depends_on: {ready: {condition: service_completed_successfully}}
  reader:
    image: ${IMAGE}
    command: [read, /data/file]
    volumes: [data:/data]
    depends_on: {worker: {condition: service_completed_successfully}}
volumes:
  data: {}
`

func checkCompose(t *testing.T, api *client.Client) {
	start := client.StartCompose{File: composeText}
	start.Env = map[string]string{"IMAGE": dockertest.Image, "GREETING": "to work"}
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || !strings.Contains(e.Stdout, "| ready to work") || !strings.Contains(e.Stdout, "| written") {
		t.Errorf("it is %v with output %q %q, errors %v", e.Status, e.Stdout, e.Stderr, e.Errors)
	}
	start.File = "services:\n  a: {image: $IMAGE, command: [term, '9']}\n  b: {image: $IMAGE, command: [exit, '7']}\n"
	if started, err = api.SubmitCompose(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	e = mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusFailed || e.ReturnCode == nil || *e.ReturnCode != 7 {
		t.Errorf("it is %v with code %v, output %q %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Stderr, e.Errors)
	}
	if testsize.Long { // Docker Compose does not notice, so that it takes ten seconds.
		checkFailedDependency(t, api, start)
	}
	// The services reach each other by name, and a bridge has an address for each container.
	start.File = fmt.Sprintf("services:\n  a: {image: $IMAGE, command: [serve, '8000'], scale: %d}\n"+
		"  b: {image: $IMAGE, command: [ask, 'http://a:8000/hello', '7'], depends_on: [a]}\n", testsize.Pick(2, 20))
	if started, err = api.SubmitCompose(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	e = mustFinish(t, api, started.ExecutionID)
	if e.ReturnCode == nil || *e.ReturnCode != 7 || !strings.Contains(e.Stdout, "served /hello") {
		t.Errorf("it is %v with code %v, output %q %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Stderr, e.Errors)
	}
	t.Run("internal networks", func(t *testing.T) { checkInternalNetworks(t, api) })
	checkGang(t, api)
	checkBadCompose(t, api)
}

// checkFailedDependency has a service fail that another one waits for: it gives the exit code.
func checkFailedDependency(t *testing.T, api *client.Client, start client.StartCompose) {
	t.Helper()
	start.File = "services:\n  a: {image: $IMAGE, command: [exit, '7']}\n" +
		"  b: {image: $IMAGE, command: [print, b], depends_on: {a: {condition: service_completed_successfully}}}\n"
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusFailed || e.ReturnCode == nil || *e.ReturnCode != 7 {
		t.Errorf("it is %v with code %v, output %q %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Stderr, e.Errors)
	}
}

// checkGang reserves GPUs in two services, which one node gives together: 3 are a gang of 4.
// A start with more of them than any node has is refused.
func checkGang(t *testing.T, api *client.Client) {
	t.Helper()
	const service = "  %s: {image: $IMAGE, command: [print, x], deploy: {resources: {reservations: {devices: [" +
		"{driver: nvidia, count: %d, capabilities: [gpu]}]}}}}\n"
	files := func(a, b int) client.StartCompose {
		start := client.StartCompose{File: "services:\n" + fmt.Sprintf(service, "a", a) + fmt.Sprintf(service, "b", b)}
		start.Env, start.ExecutionType = map[string]string{"IMAGE": dockertest.Image}, "gpu.l40s"
		return start
	}
	started, err := api.SubmitCompose(t.Context(), files(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || len(e.Attempts) != 1 || len(e.Attempts[0].GPUs) != 4 {
		t.Errorf("it is %v, errors %v, after %+v", e.Status, e.Errors, e.Attempts)
	}
	if _, err := api.SubmitCompose(t.Context(), files(2, 3)); err == nil || !strings.Contains(err.Error(), "l40s") {
		t.Errorf("5 GPUs of one type, of which a node has 4: %v", err)
	}
}

// checkBadCompose sends Compose files that are refused, with the place of the fault.
func checkBadCompose(t *testing.T, api *client.Client) {
	t.Helper()
	var many strings.Builder
	many.WriteString("services:\n")
	for n := range 10_000 {
		fmt.Fprintf(&many, "  s%d: {image: x}\n", n)
	}
	for text, place := range map[string]string{
		"services:\n  a:\n    image: x\n    privileged: true\n":                           "line 4, column 5",
		"services:\n\tweb: {image: x}\n":                                                  "line 2",
		"services:\n  web: *nowhere\n":                                                    "line 2",
		"services:\n  a: {image: x, depends_on: [b]}\n  b: {image: x, depends_on: [a]}\n": "line 2",
		many.String(): "line 66",
	} {
		_, err := api.SubmitCompose(t.Context(), client.StartCompose{File: text})
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity || !strings.Contains(err.Error(), place) {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}

const internalText = `
services:
  server:
    image: ${IMAGE}
    command: [serve, "8000"]
    networks: {back: {aliases: [database]}}
  shut:
    image: ${IMAGE}
    command: [each, dial, "$MACHINE", ";", bound, "$MACHINE", ";", dial, "192.0.2.1:80", ";", lookup, example.com]
    networks: [back]
  apart:
    image: ${IMAGE}
    command: [each, lookup, server, ";", lookup, web]
  web:
    image: ${IMAGE}
    command: [ask, "http://database:8000/hello", "7"]
    networks: [back, front]
    depends_on:
      shut: {condition: service_completed_successfully}
      apart: {condition: service_completed_successfully}
networks:
  front: {}
  back: {internal: true}
`

// checkInternalNetworks executes a Compose file with a network without a way out: its
// services reach each other, also from a service that is on the other network too, and
// nothing else. Services that are not on it do not know them.
func checkInternalNetworks(t *testing.T, api *client.Client) {
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	machine := fmt.Sprintf("%s:%d", machineAddress(t), listener.Addr().(*net.TCPAddr).Port)
	start := client.StartCompose{File: internalText}
	start.Env = map[string]string{"IMAGE": dockertest.Image, "MACHINE": machine}
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.ReturnCode == nil || *e.ReturnCode != 7 || !strings.Contains(e.Stdout, "served /hello") {
		t.Errorf("it is %v with code %v, output %q %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Stderr, e.Errors)
	}
	for _, attack := range []string{"dial " + machine, "bound " + machine, "dial 192.0.2.1:80", "lookup example.com", "lookup server"} {
		if !strings.Contains(e.Stdout, attack+": failed") {
			t.Errorf("%s is not refused: %q", attack, e.Stdout)
		}
	}
	docker := dockertest.Client(t)
	nodetest.Eventually(t, time.Minute, "the end of the networks", func() bool {
		left, err := docker.NetworkList(t.Context(), dockerclient.NetworkListOptions{
			Filters: make(dockerclient.Filters).Add("label", "berth.attempt="+started.ExecutionID.String()+".1"),
		})
		return err == nil && len(left.Items) == 0
	})
}

const endlessText = `
services:
  one:
    image: ${IMAGE}
    command: [term, "0"]
    volumes: [data:/data]
    networks: [back]
  two:
    image: ${IMAGE}
    command: [term, "0"]
    networks: [back, front]
volumes: {data: {}}
networks: {front: {}, back: {internal: true}}
`

// checkComposeLeaves ends executions of a Compose file by an abort and by the death of the
// supervisor, which is above Docker Compose: neither leaves a container, a volume or a
// network.
func checkComposeLeaves(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	docker := dockertest.Client(t)
	ends := []struct {
		name, reason string
		end          func(compute.ExecutionID)
	}{
		{"abort", "aborted", func(id compute.ExecutionID) {
			if err := api.Abort(t.Context(), id); err != nil {
				t.Error(err)
			}
		}},
		{"killed supervisor", "supervisor_lost", func(id compute.ExecutionID) { mustKillSupervisorOf(t, id, dataDirs(c)...) }},
	}
	start := client.StartCompose{File: endlessText, GracefulTimeout: 30}
	start.Env = map[string]string{"IMAGE": dockertest.Image}
	var ids []compute.ExecutionID
	for range ends {
		started, err := api.SubmitCompose(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, started.ExecutionID)
	}
	labels := make([][]string, len(ends))
	for i, tt := range ends {
		nodetest.Eventually(t, endWait, "both services to run", func() bool {
			e, err := api.Execution(t.Context(), ids[i], 0)
			return err == nil && strings.Count(e.Stdout, "ready") == 2
		})
		attempt := "berth.attempt=" + ids[i].String() + ".1"
		containers, err := docker.ContainerList(t.Context(), dockerclient.ContainerListOptions{
			All: true, Filters: make(dockerclient.Filters).Add("label", attempt),
		})
		if err != nil || len(containers.Items) == 0 {
			t.Fatalf("%s: %d containers: %v", tt.name, len(containers.Items), err)
		}
		if seen := mustInspect(t, docker, containers.Items[0].ID).Container.Config; seen.StopTimeout == nil || *seen.StopTimeout != 30 {
			t.Errorf("%s: the engine ends a service after %v seconds", tt.name, seen.StopTimeout)
		}
		const project = "com.docker.compose.project"
		labels[i] = []string{attempt, project + "=" + containers.Items[0].Labels[project]}
		for _, label := range labels[i] {
			if made := onEngine(t, docker, label); made != [3]int{2, 1, 1} {
				t.Errorf("%s: with label %s there are %v containers, volumes and networks", tt.name, label, made)
			}
		}
		tt.end(ids[i])
	}
	for i, tt := range ends {
		if e := mustFinish(t, api, ids[i]); e.StatusDetails == nil || *e.StatusDetails != tt.reason {
			t.Errorf("%s: it is %v, details %v, errors %v", tt.name, e.Status, e.StatusDetails, e.Errors)
		}
		nodetest.Eventually(t, endWait, tt.name+": nothing to be left", func() bool {
			return onEngine(t, docker, labels[i][0]) == [3]int{} && onEngine(t, docker, labels[i][1]) == [3]int{}
		})
	}
}

// onEngine returns how many containers, volumes and networks with a label there are.
func onEngine(t *testing.T, docker *dockerclient.Client, label string) (n [3]int) {
	t.Helper()
	with := make(dockerclient.Filters).Add("label", label)
	containers, err := docker.ContainerList(t.Context(), dockerclient.ContainerListOptions{All: true, Filters: with})
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := docker.VolumeList(t.Context(), dockerclient.VolumeListOptions{Filters: with})
	if err != nil {
		t.Fatal(err)
	}
	networks, err := docker.NetworkList(t.Context(), dockerclient.NetworkListOptions{Filters: with})
	if err != nil {
		t.Fatal(err)
	}
	return [3]int{len(containers.Items), len(volumes.Items), len(networks.Items)}
}

// dataDirs returns the data directories of all nodes.
func dataDirs(c *nodetest.Cluster) (dirs []string) {
	for _, n := range c.Nodes {
		dirs = append(dirs, n.Config.DataDir)
	}
	return dirs
}

// mustKillSupervisorOf kills the supervisor of the first attempt of an execution.
func mustKillSupervisorOf(t *testing.T, id compute.ExecutionID, dataDirs ...string) {
	t.Helper()
	for _, dir := range dataDirs {
		data, err := os.ReadFile(filepath.Join(dir, "attempts", id.String(), "1", supervise.PIDFile))
		if err != nil {
			continue // It is on another node.
		}
		pid, err := strconv.Atoi(strings.Fields(string(data))[0])
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("nothing supervises the execution")
}

// machineAddress returns an address of this machine on a network.
func machineAddress(t *testing.T) string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine is on no network")
	return ""
}

// checkComplete reports the end of an execution of a Compose file to a follower. One that
// lives ends by that as by a stop: it is charged until it is gone, and leaves nothing but the
// report. One that has ended stays as it is. Another organization can do neither.
func checkComplete(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	docker, stranger := dockertest.Client(t), nodetest.MustClient(t, c.MustAccount("stranger").Key, c.Follower().URL())
	start := client.StartCompose{File: endlessText}
	start.Env = map[string]string{"IMAGE": dockertest.Image}
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	id, label := started.ExecutionID, "berth.attempt="+started.ExecutionID.String()+".1"
	nodetest.Eventually(t, endWait, "both services to run", func() bool {
		e, err := api.Execution(t.Context(), id, 0)
		return err == nil && strings.Count(e.Stdout, "ready") == 2
	})
	if made := onEngine(t, docker, label); made != [3]int{2, 1, 1} {
		t.Errorf("there are %v containers, volumes and networks", made)
	}
	code := 7
	seen := wire.ComposeComplete{Output: "the end", Status: "failed", ReturnCode: &code}
	if _, err := stranger.CompleteCompose(t.Context(), id, seen); statusOf(err) != http.StatusNotFound {
		t.Errorf("the report of another organization: %v", err)
	}
	if e, err := api.Execution(t.Context(), id, 0); err != nil || e.Status != compute.StatusRunning || e.Reported != nil {
		t.Fatalf("after the report of another organization it is %v with report %+v: %v", e.Status, e.Reported, err)
	}
	answer, err := api.CompleteCompose(t.Context(), id, seen)
	if err != nil || answer.ExecutionID != id || answer.Status != compute.StatusRunning || answer.Message == "" {
		t.Fatalf("answered %+v, %v", answer, err)
	}
	e := mustFinish(t, api, id)
	if e.Status != compute.StatusCancelled || !strings.Contains(e.Stdout, "terminated") {
		t.Errorf("it is %v with output %q, errors %v", e.Status, e.Stdout, e.Errors)
	}
	if r := e.Reported; r == nil || r.Output != "the end" || orNone(r.Status) != "failed" || r.ReturnCode == nil || *r.ReturnCode != 7 {
		t.Fatalf("it has the report %+v", r)
	}
	record, ok := c.Leader().Peer().View().AnyExecution(id)
	if !ok || e.Billed == nil || *e.Billed == 0 || *e.Billed != record.Price.Charge(record.Duration) || *e.EndTime < e.Reported.At {
		t.Errorf("from %v to %v it is billed %v, and its end was reported at %v", e.StartTime, e.EndTime, e.Billed, e.Reported.At)
	}
	nodetest.Eventually(t, endWait, "nothing to be left", func() bool { return onEngine(t, docker, label) == [3]int{} })
	mustStayEnded(t, api, stranger, e)

	start.File = "services: {a: {image: $IMAGE, command: [print, done]}}"
	if started, err = api.SubmitCompose(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	e = mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || e.Billed == nil || *e.Billed == 0 {
		t.Fatalf("it is %v, billed %v, errors %v", e.Status, e.Billed, e.Errors)
	}
	mustStayEnded(t, api, stranger, e)
}

// mustStayEnded reports the end of an execution that has ended, with and without a body.
// Nothing of it changes but that the first report is kept, and each answer is the same.
func mustStayEnded(t *testing.T, api, stranger *client.Client, before wire.Execution) {
	t.Helper()
	id, lines := before.ExecutionID, linesOf(t, api, before.ExecutionID)
	want := wire.Stopped{}
	for i, body := range []any{wire.ComposeComplete{Output: "another", Status: "failed"}, wire.ComposeComplete{Status: "completed"}, struct{}{}, nil} {
		var answer wire.Stopped
		call := berth.Call{Method: http.MethodPost, Path: "/execution/compose/complete/" + id.String(), Body: body, Out: &answer}
		if err := api.Do(t.Context(), call); err != nil {
			t.Fatalf("report %+v: %v", body, err)
		}
		if i == 0 {
			want = answer
		}
		if answer != want || answer.ExecutionID != id || answer.Status != before.Status {
			t.Errorf("report %+v is answered with %+v, before with %+v", body, answer, want)
		}
		if err := stranger.Do(t.Context(), call); statusOf(err) != http.StatusNotFound {
			t.Errorf("report %+v of another organization: %v", body, err)
		}
	}
	after := mustFinish(t, api, id)
	if before.Reported == nil {
		if after.Reported == nil || after.Reported.Output != "another" {
			t.Errorf("it has the report %+v", after.Reported)
		}
		after.Reported = nil
	}
	if !reflect.DeepEqual(after, before) {
		t.Errorf("what has ended was\n%+v\nand is\n%+v", before, after)
	}
	if now := linesOf(t, api, id); len(lines) == 0 || !reflect.DeepEqual(now, lines) {
		t.Errorf("the ledger had\n%+v\nand has\n%+v", lines, now)
	}
}

// linesOf returns the lines of an execution in the ledger of its organization.
func linesOf(t *testing.T, api *client.Client, id compute.ExecutionID) (lines []wire.LedgerEntry) {
	t.Helper()
	for cursor := new(uint64); cursor != nil; {
		page, err := api.Ledger(t.Context(), *cursor, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range page.Entries {
			if line.ExecutionID != nil && *line.ExecutionID == id {
				lines = append(lines, line)
			}
		}
		cursor = page.NextCursor
	}
	return lines
}
