package worker

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"berth/attempt"
	"berth/compute"
)

// TestWorkerIsToldNoMore is the table of what a worker learns of an execution.
// A new field of compute.Execution goes into one of the two lists, and into
// forWorker if it is in the first.
func TestWorkerIsToldNoMore(t *testing.T) {
	told := []string{
		"ID", "Org", "Kind", "Status", "Profile", "Request", "Bundle", "FileName", "Timeout", "DisconnectGrace", "Network",
		"Epoch", "Stop", "StopGrace", "Preemptible", "ExecletAt", "StartedAt", "MaxRetries", "Retries",
		"Volumes", "ScratchMiB", "ScratchMemory", "Files", "Serving", "CreditsEnd", "Environment", "Container", "Storage", "Inference", "OutputsPrefix",
		"Repeat", // Runs of a selection have folders of their own for outputs.
		"Parent", // The deployment of a replica, by which its engine is asked.
	}
	withheld := []string{
		"User", "Key", "Reason", "Detail", "Imports", "JobType", "Priority", "Tags", "CallbackURLs",
		"MaxCredits", "Price", "Held", "Billed", "SubmitIndex", "CreatedAt", "PlacedAt", "EndedAt", "FinishedAt", "Ran",
		"ExitCode", "Duration", "Usage", "Selection", "Deleted", "Estimate", "Predicted", "Avoid", "Owed",
		"ImportFiles", "Name", "Outputs", "MinVRAMMiB", "GPUTypes", "MinCapability", "Service", "Ready", "ReadyAt",
		"ProviderCost", "Series", "Deployment",
	}
	var e compute.Execution
	fill(reflect.ValueOf(&e).Elem())
	got := reflect.ValueOf(*forWorker(compute.Work{Attempt: &compute.Attempt{}, Execution: &e}))
	for i := range got.NumField() {
		name := got.Type().Field(i).Name
		switch isTold := !got.Field(i).IsZero(); {
		case slices.Contains(told, name) == slices.Contains(withheld, name):
			t.Errorf("say whether a worker is told %s", name)
		case isTold != slices.Contains(told, name):
			t.Errorf("a worker is told %s: %v", name, isTold)
		}
	}
	short := compute.Execution{Timeout: time.Second, StopGrace: time.Minute, Price: 100, MaxCredits: 300}
	if got := forWorker(compute.Work{Attempt: &compute.Attempt{}, Execution: &short}).StopGrace; got != 2*time.Second {
		t.Errorf("a worker gives code a grace of %v that its ceiling does not pay for", got)
	}
	started := forWorker(compute.Work{Attempt: &compute.Attempt{Started: true}, Execution: &e})
	if started.Bundle.Inline != nil || started.Bundle.Hash != e.Bundle.Hash || e.Bundle.Inline == nil {
		t.Error("the code of what was started is sent again, or gone from the state")
	}
}

// TestWorkerHasTheLeadersLease: the leader judges by the whole record how long
// an attempt may live that it does not hear of.
func TestWorkerHasTheLeadersLease(t *testing.T) {
	for _, e := range []compute.Execution{
		{},
		{MaxRetries: 1},
		{MaxRetries: 2, Retries: 2},
		{DisconnectGrace: 10 * time.Minute},
		{MaxRetries: 3, Retries: 1, DisconnectGrace: time.Hour},
		{Preemptible: true, DisconnectGrace: time.Minute},
		{Parent: compute.ExecutionID{UUID: compute.UUID{1}}, Kind: compute.KindSubSelection, MaxRetries: 2},
	} {
		told := forWorker(compute.Work{Attempt: &compute.Attempt{}, Execution: &e})
		if got, want := attempt.LeaseOf(told), attempt.LeaseOf(&e); got != want {
			t.Errorf("a worker holds %+v for %v, and the leader %v", e, got, want)
		}
		if attempt.MayLeave(told) != attempt.MayLeave(&e) {
			t.Errorf("a worker takes %+v for what may leave a drained node: %t", e, attempt.MayLeave(told))
		}
	}
}

// fill sets what v holds to something.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.String:
		v.SetString("something")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	default:
		panic("no value for a " + v.Kind().String())
	}
}

func TestOperationsOfWorkersDoNotMeet(t *testing.T) {
	op := compute.UUID{1}
	one, two := compute.NodeID{UUID: compute.UUID{1}}, compute.NodeID{UUID: compute.UUID{2}}
	if opOf(one, op) == opOf(two, op) {
		t.Error("two workers name one operation")
	}
	if again := opOf(one, op); again != opOf(one, op) {
		t.Error("a repeat is another operation")
	}
}
