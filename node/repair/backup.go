package repair

import (
	"fmt"
	"io"
	"os"
	"time"

	"berth/cluster/replica"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/snapshot"
	"berth/node/storage"
)

// Backup is the content of a backup file.
type Backup struct {
	File   string                `json:"file"`
	Header snapshot.BackupHeader `json:"header"`
	State  fsm.Summary           `json:"state"`
}

// NotInBackup lists what a backup does not hold and must be backed up
// separately.
func NotInBackup() []string {
	return []string{
		"the master key (DATA_DIR/keys/master.key), which unseals what the state holds sealed",
		"the keys of the certificate authority and of gossip (DATA_DIR/pki, DATA_DIR/keys)",
		"the root token (DATA_DIR/root_token until it is rotated); the state holds its hash",
		"bundles over 16 KiB and archives of old executions (DATA_DIR/blobs), and what executions wrote (DATA_DIR/logs)",
	}
}

// CheckBackup reads a backup to its end and verifies its checksum.
func CheckBackup(r io.Reader) (snapshot.BackupHeader, error) { return snapshot.CheckBackup(r) }

// VerifyBackup reads the state in a backup file as a restore does, and checks
// every invariant. The file must be complete and derived data must match the
// records. Each organization's ledger must be an unbroken chain that adds up.
func VerifyBackup(path string) (Backup, error) {
	b, machine, err := readBackup(path)
	if err != nil {
		return b, err
	}
	if err := machine.View().Check(); err != nil {
		return b, fmt.Errorf("the state in %s breaks an invariant: %w", path, err)
	}
	return b, nil
}

// Restore describes the effects of restoring a backup on a server.
type Restore struct {
	Backup

	Node  compute.NodeID `json:"node"`  // Becomes the only voter.
	Epoch uint64         `json:"epoch"` // The epoch of the restored cluster.

	Ended           int    `json:"attempts_ended"` // Live in the backup; unbilled.
	Queued          int    `json:"queued"`         // They will be executed, perhaps for the second time.
	Tokens          int    `json:"join_tokens_void"`
	MissingArchives int    `json:"archives_missing"`    // Archives of the state whose blobs are not in the data directory.
	SetAside        string `json:"set_aside,omitempty"` // The directory of the previous replica, once done.
	Done            bool   `json:"done"`
}

// RestoreBackup makes the stopped server in dir the only voter of its cluster,
// with the state of a backup of that cluster, in the next epoch. The other
// servers join empty. The keys in dir stay and must belong to the backup's
// cluster.
//
// Without do it changes nothing, reports what it would do, and checks every
// invariant, as VerifyBackup does. With do only the checks of reading apply:
// the encoding of every record, the checksums, and the chains of the ledgers.
func RestoreBackup(path, dir string, do bool, now time.Time) (Restore, error) {
	b, machine, err := readBackup(path)
	if err != nil {
		return Restore{Backup: b}, err
	}
	stopped, err := replica.OpenStopped(dir)
	if err != nil {
		return Restore{Backup: b}, err
	}
	defer stopped.Close()
	r := Restore{Backup: b, Node: stopped.Node(), Epoch: max(stopped.NextEpoch(), b.Header.Epoch+1)}
	view := machine.View()
	self, known := view.Node(r.Node)
	switch {
	case stopped.ClusterID() != b.Header.Cluster:
		return r, compute.Errorf(compute.CodeConflict,
			"%s is a backup of cluster %s, the server in %s is of cluster %s: use the data directory of a server of the former.",
			path, b.Header.Cluster, dir, stopped.ClusterID())
	case !known:
		return r, compute.Errorf(compute.CodeConflict,
			"The server in %s, %s, is not in the backup: use the data directory of one that joined before it was saved.",
			dir, r.Node)
	}
	for range view.JoinTokens() {
		r.Tokens++
	}
	for a := range view.Archives() {
		if !storage.OnDisk(dir, a.Blob) {
			r.MissingArchives++
		}
	}
	ended, err := raiseEpoch(machine, r.Epoch, now)
	if err != nil {
		return r, err
	}
	view = machine.View()
	r.Ended, r.Queued = ended, view.Summary().ByStatus[compute.StatusQueued.String()]
	if !do {
		return r, view.Check()
	}
	snapshot, err := machine.Snapshot()
	if err != nil {
		return r, err
	}
	r.SetAside, err = stopped.Replace(replica.Replacement{
		Epoch: r.Epoch, Index: view.Index(), Term: max(view.Term(), 1), Address: self.RPC, Write: snapshot.Persist,
	}, now)
	r.Done = err == nil
	return r, err
}

// raiseEpoch applies to a restored state the entry that ends the previous epoch,
// so that no server ever serves the state without it. It returns how many
// attempts that entry ended.
func raiseEpoch(machine *fsm.FSM, epoch uint64, now time.Time) (int, error) {
	view := machine.View()
	index := view.Index() + 1
	if known := min(view.CommonFormat(), format.Newest); known > view.Format() {
		raise, err := command.Encode(command.SetFormat{Term: view.Term(), Format: known})
		if err != nil {
			return 0, err
		}
		machine.ApplyFrames(index, raise)
	}
	begin := command.RaiseEpoch{Term: view.Term(), Epoch: epoch, Cause: command.CauseRestored, At: compute.InstantOf(now)}
	if err := machine.View().Allows(begin); err != nil {
		return 0, err
	}
	frame, err := command.Encode(begin)
	if err != nil {
		return 0, err
	}
	results := machine.ApplyFrames(index, frame)
	if refusal := results[0].Refusal; refusal != nil {
		return 0, refusal
	}
	return results[0].Count, nil
}

// readBackup returns the state in a backup file.
func readBackup(path string) (Backup, *fsm.FSM, error) {
	f, err := os.Open(path)
	if err != nil {
		return Backup{}, nil, err
	}
	defer f.Close()
	head, machine, err := fsm.ReadBackup(f)
	if err != nil {
		return Backup{File: path, Header: head}, nil, fmt.Errorf("%s: %w", path, err)
	}
	return Backup{File: path, Header: head, State: machine.View().Summary()}, machine, nil
}
