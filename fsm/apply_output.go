package fsm

import (
	"cmp"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/store"
)

// Limits of one command about archived output.
const (
	// MaxOutputRows is how many outputs one command archives at most.
	MaxOutputRows  = 256
	maxOutputTrims = 1_000 // The most that one command.TrimOutputs drops.
)

// outputKey is the place of an archived output among others by age.
type outputKey struct {
	at compute.Instant
	of numberKey
}

func byOutput(a, b outputKey) int { return cmp.Or(cmp.Compare(a.at, b.at), byNumberKey(a.of, b.of)) }

// outputTables has what ended attempts printed, as far as that is archived.
type outputTables struct {
	archivedOutputs store.Records[numberKey, compute.OutputArchive] // By execution, epoch.
	outputAges      store.Index[outputKey, compute.OutputArchive]   // The oldest first.
}

func newOutputTables() outputTables {
	return outputTables{
		archivedOutputs: store.NewRecords(byNumberKey, outputPlace),
		outputAges: store.NewIndex(byOutput,
			func(o *compute.OutputArchive) outputKey { return outputKey{o.At, outputPlace(o)} },
			always[compute.OutputArchive]),
	}
}

func outputPlace(o *compute.OutputArchive) numberKey { return numberKey{o.Execution.UUID, o.Epoch} }

// ArchivedOutput returns what an attempt printed, if that is archived.
func (v *outputTables) ArchivedOutput(id compute.ExecutionID, epoch uint64) (*compute.OutputArchive, bool) {
	return v.archivedOutputs.Get(numberKey{id.UUID, epoch})
}

// ArchivedOutputs returns how many outputs are archived, and their bytes.
func (v *View) ArchivedOutputs() (count int, bytes int64) {
	return v.archivedOutputs.Len(), v.counts.output
}

// putOutput stores o and what is derived from it.
func (v *View) putOutput(o *compute.OutputArchive) { v.followOutput(v.archivedOutputs.Put(o), o) }

// dropOutput removes the archived output of an attempt.
func (v *View) dropOutput(k numberKey) {
	if old := v.archivedOutputs.Drop(k); old != nil {
		v.followOutput(old, nil)
	}
}

func (v *View) followOutput(before, after *compute.OutputArchive) {
	v.outputAges.Update(before, after)
	if before != nil {
		v.counts.output -= before.Size
	}
	if after != nil {
		v.counts.output += after.Size
	}
}

// dropOutputs removes the archived output of all attempts of an execution.
func (v *View) dropOutputs(id compute.ExecutionID) {
	var keys []numberKey
	for k := range v.archivedOutputs.From(numberKey{owner: id.UUID}) {
		if k.owner != id.UUID {
			break
		}
		keys = append(keys, k)
	}
	for _, k := range keys {
		v.dropOutput(k)
	}
}

// archiveOutputs records where the output of ended attempts is. It leaves out output that
// is recorded already, or whose execution is gone. A whole output replaces one that may lack
// its end.
func (s *retention) archiveOutputs(c command.ArchiveOutputs) command.Result {
	if len(c.Outputs) == 0 || len(c.Outputs) > MaxOutputRows {
		return refuse(compute.CodeInvalid, "outputs", "archive 1 to %d outputs at a time", MaxOutputRows)
	}
	taken := 0
	for _, o := range c.Outputs {
		k := outputPlace(&o)
		e, _ := s.view.executions.Get(o.Execution)
		a, ok := s.view.attempts.Get(k)
		if !ok || !a.Ended || e == nil || e.Deleted || s.view.Bucket(e.Org) == nil || o.Size <= 0 ||
			o.Size > compute.MaxOutputArchive || o.Blob == (compute.Hash{}) {
			continue
		}
		if known, ok := s.view.archivedOutputs.Get(k); ok && (!known.Partial || o.Partial) {
			continue
		}
		o.Org, o.At = e.Org, s.view.meta.Now
		s.view.putOutput(&o)
		taken++
	}
	return command.Result{Count: taken}
}

// trimOutputs drops the oldest archived outputs beyond a limit of bytes.
func (s *retention) trimOutputs(c command.TrimOutputs) command.Result {
	dropped := 0
	for s.view.counts.output > max(c.Bytes, 0) && dropped < maxOutputTrims {
		k, _ := s.view.outputAges.Next(outputKey{})
		s.view.dropOutput(k.of)
		dropped++
	}
	return command.Result{Count: dropped}
}
