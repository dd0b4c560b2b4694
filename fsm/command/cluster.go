package command

import (
	"fmt"
	"time"

	"berth/compute"
	"berth/fsm/format"
)

// EpochCause is the reason for a new cluster epoch.
type EpochCause uint8

// The causes. Values are written to disk: append only.
const (
	CauseRestored  EpochCause = iota + 1 // The state was restored from a backup.
	CauseRecovered                       // It went on without a quorum of the old voters.
)

// String returns the cause as text.
func (c EpochCause) String() string {
	switch c {
	case CauseRestored:
		return "restored from a backup"
	case CauseRecovered:
		return "recovered without a quorum"
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

type (
	// Clock is the leader's time and term. The leader puts it in front of each entry.
	// The time raises the state's clock, and the term fences older leaders.
	Clock struct {
		At   compute.Instant `cbor:"1,keyasint"`
		Term uint64          `cbor:"2,keyasint"`
	}

	// Bootstrap is the first command of a cluster.
	Bootstrap struct {
		ClusterID compute.UUID             `cbor:"1,keyasint"`
		RootToken compute.Hash             `cbor:"2,keyasint"` // SHA-256 of the root token.
		Settings  Settings                 `cbor:"3,keyasint"`
		Prices    map[string]compute.Price `cbor:"4,keyasint"` // By GPU type, and "cpu".
		Signing   compute.SigningKey       `cbor:"5,keyasint"`
		Own       []string                 `cbor:"6,keyasint,omitempty"` // Those of Prices that the operator chose.
	}

	// RotateRootToken replaces the root token. From the next entry on the one before is refused.
	RotateRootToken struct {
		Op     Op           `cbor:"1,keyasint"`
		Actor  Actor        `cbor:"2,keyasint"` // Root or an operator.
		Token  compute.Hash `cbor:"3,keyasint"` // SHA-256 of the new one.
		Before compute.Hash `cbor:"4,keyasint"` // SHA-256 of the one that it replaces.
	}

	// SetSettings replaces the operator's configuration of the whole cluster, except the
	// billing mode, which SetBillingMode changes.
	SetSettings struct {
		Term     uint64   `cbor:"1,keyasint"`
		Settings Settings `cbor:"2,keyasint"`
	}

	// Settings is the part of the configuration that the state needs, so that every
	// replica decides alike.
	Settings struct {
		SignupGrant  compute.Credits `cbor:"1,keyasint"`
		Meter        bool            `cbor:"2,keyasint,omitempty"` // billing.mode meter: never refuse for credits.
		Concurrent   int             `cbor:"3,keyasint"`           // Live attempts per organization.
		Queued       int             `cbor:"4,keyasint"`           // Executions that wait, per organization.
		Keys         int             `cbor:"5,keyasint"`           // API keys per organization.
		TimeoutMax   time.Duration   `cbor:"6,keyasint"`
		KeepFinished time.Duration   `cbor:"7,keyasint"` // How long terminal executions stay in the state.
		MaxFinished  int             `cbor:"8,keyasint"` // How many terminal executions stay in the state.
		SelectionMax int             `cbor:"9,keyasint"` // GPU types of one GPU selection.

		// StopGrace is how long code may take to end after SIGTERM, which is
		// paid for like the rest of its time.
		StopGrace time.Duration `cbor:"10,keyasint,omitempty"`

		// ShareHalfLife is the time after which fair share counts half of an
		// organization's use; 0 for a day.
		ShareHalfLife time.Duration `cbor:"11,keyasint,omitempty"`

		// PreemptMinRun is how long a preemptible attempt runs before it can be
		// preempted. PreemptNotice is how long before SIGTERM its code is notified.
		PreemptMinRun time.Duration `cbor:"12,keyasint,omitempty"`
		PreemptNotice time.Duration `cbor:"13,keyasint,omitempty"`

		// Forget has Tick forget executions that need not stay, instead of
		// waiting for their archive. It is for simulations, which keep no blobs.
		Forget bool `cbor:"14,keyasint,omitempty"`

		// TimeoutDefault is the time limit of an execution that asks for none; 0 for
		// a minute.
		TimeoutDefault time.Duration `cbor:"20,keyasint,omitempty"`
	}

	// RecordDeed records in the cluster's audit trail an operator's action that changes
	// nothing, such as saving a backup.
	RecordDeed struct {
		Op     Op     `cbor:"1,keyasint"`
		Actor  Actor  `cbor:"2,keyasint"` // Root or an operator.
		Action string `cbor:"3,keyasint"`
		Target string `cbor:"4,keyasint,omitempty"`
	}

	// SetFormat raises the format of the state: its commands and fields may be
	// proposed from then on. Every registered server must know it.
	SetFormat struct {
		Term   uint64 `cbor:"1,keyasint"`
		Format uint64 `cbor:"2,keyasint"`
	}

	// RaiseEpoch starts a new cluster epoch, after the state was restored from
	// a backup or recovered without a quorum of the old voters. It invalidates
	// everything that could still act for an older epoch: live attempts end
	// without charge; join tokens, logins and signing keys are removed; new
	// attempts get higher epochs than any before. Every ledger gets a fork line.
	// An epoch that was reached before changes nothing.
	RaiseEpoch struct {
		Term  uint64     `cbor:"1,keyasint"`
		Epoch uint64     `cbor:"2,keyasint"`
		Cause EpochCause `cbor:"3,keyasint"`
		// At is the start of the pause in scheduling; a restore raises the
		// state's clock to it.
		At compute.Instant `cbor:"4,keyasint,omitempty"`
	}

	// SetBrake sets how many of a hundred nodes that vanish at once are too many to be
	// given up, and whether the nodes that have vanished by now are gone indeed.
	SetBrake struct {
		Op      Op    `cbor:"1,keyasint"`
		Actor   Actor `cbor:"2,keyasint"`           // Root or an operator.
		Share   *int  `cbor:"3,keyasint,omitempty"` // In percent, 0 for a third; nil leaves it.
		Release bool  `cbor:"4,keyasint,omitempty"`
	}

	// Tick lets time pass: expired records go, holds of long executions grow.
	Tick struct {
		Term uint64 `cbor:"1,keyasint"`
	}
)

// clusterRows returns the rows of commands about the cluster as a whole.
func clusterRows() []*row {
	return []*row{
		payload[Clock]{
			number: 1, since: format.First, beforeBootstrap: true, onFullDisk: true,
		}.row(),
		payload[Bootstrap]{
			number: 2, since: format.First, beforeBootstrap: true,
		}.row(),
		payload[SetSettings]{
			number: 3, since: format.First, onFullDisk: true,
			term: func(c SetSettings) uint64 { return c.Term },
			uses: func(c SetSettings) uint64 {
				return max(formatIf(c.Settings.Forget, format.Trust),
					formatIf(c.Settings.TimeoutDefault != 0, format.Containers))
			},
		}.row(),
		payload[Tick]{
			number: 30, since: format.First, onFullDisk: true,
			term: func(c Tick) uint64 { return c.Term },
		}.row(),
		payload[SetFormat]{
			number: 34, since: format.First, onFullDisk: true,
			term: func(c SetFormat) uint64 { return c.Term },
		}.row(),
		payload[SetBrake]{
			number: 35, since: format.Trust, onFullDisk: true,
			op: func(c SetBrake) Op { return c.Op },
		}.row(),
		payload[RaiseEpoch]{
			number: 36, since: format.Trust, onFullDisk: true,
			term: func(c RaiseEpoch) uint64 { return c.Term },
		}.row(),
		payload[RecordDeed]{
			number: 93, since: format.Accounts,
			op: func(c RecordDeed) Op { return c.Op },
		}.row(),
		payload[RotateRootToken]{
			number: 107, since: format.Rotation, onFullDisk: true,
			op: func(c RotateRootToken) Op { return c.Op },
		}.row(),
	}
}
