package fsm

import (
	"fmt"
	"io"

	"berth/compute"
	"berth/fsm/snapshot"
)

// WriteBackup writes v as a backup, which ReadBackup reads. Version is the program's,
// and at is the time by its clock.
func (v *View) WriteBackup(w io.Writer, version string, at compute.Instant) error {
	err := snapshot.WriteBackup(w, snapshot.BackupHeader{
		Cluster: v.meta.Cluster, Epoch: v.meta.Epoch, Index: v.meta.Index, Term: v.meta.Term,
		Format: v.Format(), Version: version, At: at,
	}, v.WriteSnapshot)
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}

// ReadBackup returns the state that a backup holds, checked as Restore checks a
// snapshot.
func ReadBackup(r io.Reader) (snapshot.BackupHeader, *FSM, error) {
	in, err := snapshot.OpenBackup(r)
	if err != nil {
		return snapshot.BackupHeader{}, nil, err
	}
	s, err := readSnapshot(in)
	if err != nil {
		return in.Header, nil, fmt.Errorf("read backup: %w", err)
	}
	if err := in.Close(); err != nil {
		return in.Header, nil, err
	}
	h, m := in.Header, &s.view.meta
	if h.Cluster != m.Cluster || h.Epoch != m.Epoch || h.Index != m.Index || h.Term != m.Term ||
		h.Format != s.view.Format() {
		return h, nil, fmt.Errorf("%w: its header does not match its state", snapshot.ErrBackup)
	}
	f := newFSM(s)
	f.publish()
	return h, f, nil
}
