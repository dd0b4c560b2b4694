package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"berth/compute"
	"berth/fsm/store"
)

// commandRows is the table of commands. To add a command is to add its row, with
// the next number: a number is in every Raft log, so none is used again.
//
//nolint:funlen // A row for each command.
func commandRows() []*row {
	return append([]*row{
		command[Clock]{
			number: 1, since: formatFirst, beforeBootstrap: true, onFullDisk: true, apply: (*state).raiseClock,
		}.row(),
		command[Bootstrap]{
			number: 2, since: formatFirst, beforeBootstrap: true, apply: (*state).bootstrap,
		}.row(),
		command[SetSettings]{
			number: 3, since: formatFirst, onFullDisk: true, apply: (*state).setSettings,
			term: func(c SetSettings) uint64 { return c.Term },
			uses: func(c SetSettings) uint64 {
				return max(formatIf(c.Settings.Forget, formatTrust),
					formatIf(c.Settings.TimeoutDefault != 0, formatContainers))
			},
		}.row(),
		command[RegisterNode]{
			number: 4, since: formatFirst, apply: (*state).registerNode,
			uses: func(c RegisterNode) uint64 { return formatIf(c.Key != (compute.Hash{}), formatTrust) },
		}.row(),
		command[SetInventory]{
			number: 5, since: formatFirst, onFullDisk: true, apply: (*state).setInventory,
			term: func(c SetInventory) uint64 { return c.Term },
			uses: func(c SetInventory) uint64 {
				i := c.Inventory
				knows := slices.ContainsFunc(i.GPUs, func(g compute.GPU) bool { return g.Capability != 0 })
				return max(formatIf(len(i.Gaps) > 0, formatImports),
					formatIf(i.ScratchMiB > 0 || len(i.Offers) > 0 || knows, formatLab),
					formatIf(i.EngineFault != "", formatRotation))
			},
		}.row(),
		command[SetNodeState]{
			number: 6, since: formatFirst, onFullDisk: true, apply: (*state).setNodeState,
			term: func(c SetNodeState) uint64 { return c.Term },
		}.row(),
		command[DrainNode]{
			number: 7, since: formatFirst, onFullDisk: true, apply: (*state).drainNode,
			op:   func(c DrainNode) Op { return c.Op },
			uses: func(c DrainNode) uint64 { return formatIf(c.Within != 0, formatTrust) },
		}.row(),
		command[RemoveNode]{
			number: 8, since: formatFirst, onFullDisk: true, apply: (*state).removeNode,
			op:   func(c RemoveNode) Op { return c.Op },
			uses: func(c RemoveNode) uint64 { return formatIf(len(c.Beside) > 0, formatTrust) },
		}.row(),
		command[CreateJoinToken]{
			number: 9, since: formatFirst, apply: (*state).createJoinToken,
			op: func(c CreateJoinToken) Op { return c.Op },
		}.row(),
		command[CreateUser]{
			number: 10, since: formatFirst, apply: (*state).createUser,
			op:   func(c CreateUser) Op { return c.Op },
			uses: func(c CreateUser) uint64 { return formatIf(c.Join || c.User.Temporary, formatLab) },
		}.row(),
		command[CreateKey]{
			number: 11, since: formatFirst, apply: (*state).createKey,
			op:   func(c CreateKey) Op { return c.Op },
			uses: func(c CreateKey) uint64 { return formatIf(c.MaxCredits != 0, formatAccounts) },
		}.row(),
		command[ToggleKey]{
			number: 12, since: formatFirst, onFullDisk: true, apply: (*state).toggleKey,
			op: func(c ToggleKey) Op { return c.Op },
		}.row(),
		command[DeleteKey]{
			number: 13, since: formatFirst, onFullDisk: true, apply: (*state).deleteKey,
			op: func(c DeleteKey) Op { return c.Op },
		}.row(),
		command[RegenerateKey]{
			number: 14, since: formatFirst, apply: (*state).regenerateKey,
			op: func(c RegenerateKey) Op { return c.Op },
		}.row(),
		command[TouchKeys]{
			number: 15, since: formatFirst, apply: (*state).touchKeys,
		}.row(),
		command[StoreRefresh]{
			number: 16, since: formatFirst, onFullDisk: true, apply: (*state).storeRefresh,
			op: func(c StoreRefresh) Op { return c.Op },
			uses: func(c StoreRefresh) uint64 {
				return max(formatIf(c.Actor != (Actor{}), formatAccounts), formatIf(c.Password != (compute.Hash{}), formatRotation))
			},
		}.row(),
		command[RotateRefresh]{
			number: 17, since: formatFirst, onFullDisk: true, apply: (*state).rotateRefresh,
			op: func(c RotateRefresh) Op { return c.Op },
		}.row(),
		command[RevokeRefresh]{
			number: 18, since: formatFirst, onFullDisk: true, apply: (*state).revokeRefresh,
			op: func(c RevokeRefresh) Op { return c.Op },
		}.row(),
		command[Submit]{
			number: 19, since: formatFirst, apply: (*state).submit,
			op: func(c Submit) Op { return c.Op },
			uses: func(c Submit) uint64 {
				e := &c.Execution
				return max(formatIf(e.MaxRetries > 0, formatTrust), formatIf(e.ImportFiles > 0, formatImports),
					formatIf(len(e.Volumes) > 0 || e.ScratchMiB > 0 || e.ScratchMemory || e.MinVRAMMiB > 0 ||
						e.Name != "" || e.Files != nil, formatLab),
					formatIf(e.Kind == compute.KindService || asksAny(e), formatServices),
					formatIf(e.Container != nil || c.Key != nil || e.Environment.Name != "", formatContainers),
					formatIf(e.Storage != nil || e.Deployment != nil || e.Inference != nil, formatAccounts),
					formatIf(e.OutputsPrefix != "" || e.Deployment != nil && e.Deployment.AskedVRAMMiB != 0, formatAsked))
			},
		}.row(),
		command[TakeSelection]{
			number: 20, since: formatFirst, apply: (*state).takeSelection,
			term: func(c TakeSelection) uint64 { return c.Term },
		}.row(),
		command[CommitPlan]{
			number: 21, since: formatFirst, apply: (*state).commitPlan,
			term: func(c CommitPlan) uint64 { return c.Term },
		}.row(),
		command[StartAttempt]{
			number: 22, since: formatFirst, onFullDisk: true, apply: (*state).startAttempt,
		}.row(),
		command[FinishAttempt]{
			number: 23, since: formatFirst, onFullDisk: true, apply: (*state).finishAttempt,
			uses: func(c FinishAttempt) uint64 {
				return max(formatIf(c.Outcome.Reason == compute.ReasonPackages || c.Outcome.Outputs != nil, formatLab),
					formatIf(c.Outcome.Reason == compute.ReasonNotReady, formatServices),
					formatIf(c.Outcome.Reason == compute.ReasonImage || c.Outcome.Digest != "" || c.Outcome.Series != nil,
						formatContainers))
			},
		}.row(),
		command[LoseAttempts]{
			number: 24, since: formatFirst, onFullDisk: true, apply: (*state).loseAttempts,
			term: func(c LoseAttempts) uint64 { return c.Term },
		}.row(),
		command[StopExecution]{
			number: 25, since: formatFirst, onFullDisk: true, apply: (*state).stopExecution,
			op: func(c StopExecution) Op { return c.Op },
		}.row(),
		command[DeleteExecution]{
			number: 26, since: formatFirst, onFullDisk: true, apply: (*state).deleteExecution,
			op: func(c DeleteExecution) Op { return c.Op },
		}.row(),
		command[Grant]{
			number: 27, since: formatFirst, apply: (*state).grant,
			op: func(c Grant) Op { return c.Op },
		}.row(),
		command[SetPrices]{
			number: 28, since: formatFirst, apply: (*state).setPrices,
			op:   func(c SetPrices) Op { return c.Op },
			uses: func(c SetPrices) uint64 { return formatIf(len(c.Costs) > 0, formatContainers) },
		}.row(),
		command[AddSigningKey]{
			number: 29, since: formatFirst, apply: (*state).addSigningKey,
			term: func(c AddSigningKey) uint64 { return c.Term },
		}.row(),
		command[Tick]{
			number: 30, since: formatFirst, onFullDisk: true, apply: func(s *state, _ Tick) Result { return s.tick() },
			term: func(c Tick) uint64 { return c.Term },
		}.row(),
		command[RecordEstimates]{
			number: 31, since: formatFairness, apply: (*state).recordEstimates,
			term: func(c RecordEstimates) uint64 { return c.Term },
		}.row(),
		command[StopCandidates]{
			number: 32, since: formatFairness, onFullDisk: true, apply: (*state).stopCandidates,
			term: func(c StopCandidates) uint64 { return c.Term },
		}.row(),
		command[SetQuota]{
			number: 33, since: formatFairness, apply: (*state).setQuota,
			op: func(c SetQuota) Op { return c.Op },
		}.row(),
		command[SetFormat]{
			number: 34, since: formatFirst, onFullDisk: true, apply: (*state).setFormat,
			term: func(c SetFormat) uint64 { return c.Term },
		}.row(),
		command[SetBrake]{
			number: 35, since: formatTrust, onFullDisk: true, apply: (*state).setBrake,
			op: func(c SetBrake) Op { return c.Op },
		}.row(),
		command[RaiseEpoch]{
			number: 36, since: formatTrust, onFullDisk: true, apply: (*state).raiseEpoch,
			term: func(c RaiseEpoch) uint64 { return c.Term },
		}.row(),
		command[ArchiveExecutions]{
			number: 37, since: formatTrust, apply: (*state).archiveExecutions,
			term: func(c ArchiveExecutions) uint64 { return c.Term },
		}.row(),
		command[RemovePrice]{
			number: 38, since: formatLab, onFullDisk: true, apply: (*state).removePrice,
			op: func(c RemovePrice) Op { return c.Op },
		}.row(),
		command[SetBillingMode]{
			number: 39, since: formatLab, onFullDisk: true, apply: (*state).setBillingMode,
			op: func(c SetBillingMode) Op { return c.Op },
		}.row(),
		command[CreateUpload]{
			number: 40, since: formatLab, apply: (*state).createUpload,
			op: func(c CreateUpload) Op { return c.Op },
		}.row(),
		command[ReceiveChunks]{
			number: 41, since: formatLab, apply: (*state).receiveChunks,
		}.row(),
		command[CommitUpload]{
			number: 42, since: formatLab, apply: (*state).commitUpload,
			op: func(c CommitUpload) Op { return c.Op },
		}.row(),
		command[SetUser]{
			number: 43, since: formatLab, onFullDisk: true, apply: (*state).setUser,
			op: func(c SetUser) Op { return c.Op },
		}.row(),
		command[SetMember]{
			number: 44, since: formatLab, apply: (*state).setMember,
			op: func(c SetMember) Op { return c.Op },
		}.row(),
		command[RemoveMember]{
			number: 45, since: formatLab, onFullDisk: true, apply: (*state).removeMember,
			op: func(c RemoveMember) Op { return c.Op },
		}.row(),
		command[RecordDeliveries]{
			number: 46, since: formatDeliver, onFullDisk: true, apply: (*state).recordDeliveries,
			term: func(c RecordDeliveries) uint64 { return c.Term },
		}.row(),
		command[RedeliverCallbacks]{
			number: 47, since: formatDeliver, apply: (*state).redeliver,
			op: func(c RedeliverCallbacks) Op { return c.Op },
		}.row(),
		command[StartReplicas]{
			number: 48, since: formatServices, apply: (*state).startReplicas,
			term: func(c StartReplicas) uint64 { return c.Term },
		}.row(),
		command[ScaleService]{
			number: 49, since: formatServices, apply: (*state).scaleService,
			op: func(c ScaleService) Op { return c.Op },
		}.row(),
		command[SetReady]{
			number: 50, since: formatServices, onFullDisk: true, apply: (*state).setReady,
		}.row(),
		command[PutVariables]{
			number: 51, since: formatServices, apply: (*state).putVariables,
			op: func(c PutVariables) Op { return c.Op },
		}.row(),
		command[RemoveVariables]{
			number: 52, since: formatServices, onFullDisk: true, apply: (*state).removeVariables,
			op: func(c RemoveVariables) Op { return c.Op },
		}.row(),
		command[CreateOrg]{
			number: 53, since: formatServices, apply: (*state).createOrg,
			op: func(c CreateOrg) Op { return c.Op },
		}.row(),
		command[SetOrg]{
			number: 54, since: formatServices, apply: (*state).setOrg,
			op: func(c SetOrg) Op { return c.Op },
		}.row(),
		command[DeleteOrg]{
			number: 55, since: formatServices, onFullDisk: true, apply: (*state).deleteOrg,
			op: func(c DeleteOrg) Op { return c.Op },
		}.row(),
		command[SetDefaultOrg]{
			number: 56, since: formatServices, apply: (*state).setDefaultOrg,
			op: func(c SetDefaultOrg) Op { return c.Op },
		}.row(),
		command[PutInvite]{
			number: 57, since: formatServices, apply: (*state).putInvite,
			op: func(c PutInvite) Op { return c.Op },
		}.row(),
		command[RevokeInvite]{
			number: 58, since: formatServices, onFullDisk: true, apply: (*state).revokeInvite,
			op: func(c RevokeInvite) Op { return c.Op },
		}.row(),
		command[AnswerInvite]{
			number: 59, since: formatServices, apply: (*state).answerInvite,
			op: func(c AnswerInvite) Op { return c.Op },
		}.row(),
		command[DeleteUser]{
			number: 60, since: formatServices, onFullDisk: true, apply: (*state).deleteUser,
			op: func(c DeleteUser) Op { return c.Op },
		}.row(),
		command[CreateEnvironment]{
			number: 61, since: formatContainers, apply: (*state).createEnvironment,
			op: func(c CreateEnvironment) Op { return c.Op },
		}.row(),
		command[DeleteEnvironment]{
			number: 62, since: formatContainers, onFullDisk: true, apply: (*state).deleteEnvironment,
			op: func(c DeleteEnvironment) Op { return c.Op },
		}.row(),
		command[ReportEnvironment]{
			number: 63, since: formatContainers, apply: (*state).reportEnvironment,
		}.row(),
		command[TrustOrg]{
			number: 64, since: formatContainers, apply: (*state).trustOrg,
			op: func(c TrustOrg) Op { return c.Op },
		}.row(),
		command[CompleteExecution]{
			number: 65, since: formatContainers, onFullDisk: true, apply: (*state).completeExecution,
			op: func(c CompleteExecution) Op { return c.Op },
		}.row(),
		command[CreateBucket]{
			number: 66, since: formatContainers,
			apply: func(s *state, c CreateBucket) Result { return s.object.createBucket(c) },
		}.row(),
		command[PutObject]{
			number: 67, since: formatContainers,
			apply: func(s *state, c PutObject) Result { return s.object.put(c) },
			op:    func(c PutObject) Op { return c.Op },
		}.row(),
		command[DeleteObjects]{
			number: 68, since: formatContainers, onFullDisk: true,
			apply: func(s *state, c DeleteObjects) Result { return s.object.remove(c) },
			op:    func(c DeleteObjects) Op { return c.Op },
		}.row(),
		command[StartObjectUpload]{
			number: 69, since: formatContainers,
			apply: func(s *state, c StartObjectUpload) Result { return s.object.start(c) },
			op:    func(c StartObjectUpload) Op { return c.Op },
		}.row(),
		command[PutObjectPart]{
			number: 70, since: formatContainers,
			apply: func(s *state, c PutObjectPart) Result { return s.object.putPart(c) },
			op:    func(c PutObjectPart) Op { return c.Op },
		}.row(),
		command[AbortObjectUpload]{
			number: 71, since: formatContainers, onFullDisk: true,
			apply: func(s *state, c AbortObjectUpload) Result { return s.object.abort(c) },
			op:    func(c AbortObjectUpload) Op { return c.Op },
		}.row(),
		command[SetBucketLimits]{
			number: 72, since: formatContainers,
			apply: func(s *state, c SetBucketLimits) Result { return s.object.setLimits(c) },
			op:    func(c SetBucketLimits) Op { return c.Op },
		}.row(),
		command[SetCallbackSecret]{
			number: 73, since: formatContainers, apply: (*state).setCallbackSecret,
			op: func(c SetCallbackSecret) Op { return c.Op },
		}.row(),
		command[RemoveCallbackSecret]{
			number: 74, since: formatContainers, onFullDisk: true, apply: (*state).removeCallbackSecret,
			op: func(c RemoveCallbackSecret) Op { return c.Op },
		}.row(),
	}, slices.Concat(deploymentRows(), accountRows(), modelRows(), outputRows())...)
}

// accountRows returns the commands of budgets, purchases, sign-ups and keys.
func accountRows() []*row {
	return []*row{
		command[SetBudget]{
			number: 90, since: formatAccounts, apply: (*state).setBudget,
			op: func(c SetBudget) Op { return c.Op },
		}.row(),
		command[RemoveBudget]{
			number: 91, since: formatAccounts, onFullDisk: true, apply: (*state).removeBudget,
			op: func(c RemoveBudget) Op { return c.Op },
		}.row(),
		command[RecordPurchase]{
			number: 92, since: formatAccounts, apply: (*state).recordPurchase,
		}.row(),
		command[RecordDeed]{
			number: 93, since: formatAccounts, apply: (*state).recordDeed,
			op: func(c RecordDeed) Op { return c.Op },
		}.row(),
		command[SignUp]{
			number: 94, since: formatAccounts, apply: (*state).signUp,
			op: func(c SignUp) Op { return c.Op },
		}.row(),
		command[LinkUser]{
			number: 95, since: formatAccounts, apply: (*state).linkUser,
			op: func(c LinkUser) Op { return c.Op },
		}.row(),
		command[RotateKey]{
			number: 96, since: formatAccounts, apply: (*state).rotateKey,
			op:   func(c RotateKey) Op { return c.Op },
			uses: func(c RotateKey) uint64 { return formatIf(len(c.Texts) > 0, formatRotation) },
		}.row(),
		command[SealWith]{
			number: 97, since: formatAccounts, apply: (*state).sealWith,
			op:   func(c SealWith) Op { return c.Op },
			uses: func(c SealWith) uint64 { return formatIf(c.Before != (compute.Hash{}), formatRotation) },
		}.row(),
		command[Reseal]{
			number: 98, since: formatAccounts, apply: (*state).resealKeys,
			op: func(c Reseal) Op { return c.Op },
		}.row(),
	}
}

// outputRows returns the commands of archived output.
func outputRows() []*row {
	return []*row{
		command[ArchiveOutputs]{
			number: 105, since: formatOutput,
			apply: func(s *state, c ArchiveOutputs) Result { return s.retention.archiveOutputs(c) },
		}.row(),
		command[TrimOutputs]{
			number: 106, since: formatOutput, onFullDisk: true,
			apply: func(s *state, c TrimOutputs) Result { return s.retention.trimOutputs(c) },
			term:  func(c TrimOutputs) uint64 { return c.Term },
		}.row(),
	}
}

// command is the table's row of the command with payload C.
type command[C any] struct {
	number uint8  // The first byte of its frame.
	since  uint64 // The format of the state that added it.

	beforeBootstrap bool // It is decided although the cluster is not set up yet.

	// onFullDisk allows it while disks are full: it ends, frees or removes
	// something, the leader needs it to lead, or nobody could sign in to delete
	// something without it. Every other command makes the state grow.
	onFullDisk bool

	apply func(*state, C) Result

	op   func(C) Op     // The client's request behind it; nil if there is none.
	term func(C) uint64 // The term of the leader that made it; nil if others make it too.
	uses func(C) uint64 // The format that added a field which is set; nil if none was added.
}

// formatIf returns format for a command that uses an addition of that format.
func formatIf(used bool, format uint64) uint64 {
	if used {
		return format
	}
	return formatFirst
}

// row is a command of any payload.
type row struct {
	number          uint8
	name            string // That of the type, such as "CreateKey".
	onFullDisk      bool
	beforeBootstrap bool

	is     func(Command) bool
	schema *store.Schema // A payload that it accepts decodes.
	decode func(payload []byte) (Command, error)
	needs  func(Command) uint64 // The format that a replica has to know.
	apply  func(*state, Command) Result
	op     func(Command) Op     // Nil if no request is behind it.
	term   func(Command) uint64 // Nil if others than the leader make it.
}

// row returns the row of c. It panics if something is missing.
func (c command[C]) row() *row {
	var zero C
	r := &row{
		number: c.number, name: strings.TrimPrefix(fmt.Sprintf("%T", zero), "fsm."),
		onFullDisk: c.onFullDisk, beforeBootstrap: c.beforeBootstrap,
		is:     func(cmd Command) bool { _, is := cmd.(C); return is },
		schema: store.SchemaOf[C](),
		decode: func(payload []byte) (Command, error) {
			var cmd C
			if err := store.Decode(payload, &cmd); err != nil {
				return nil, err
			}
			return cmd, nil
		},
		needs: func(cmd Command) uint64 {
			if c.uses == nil {
				return c.since
			}
			return max(c.since, c.uses(cmd.(C)))
		},
		apply: func(s *state, cmd Command) Result { return c.apply(s, cmd.(C)) },
	}
	if c.number == 0 || c.since == 0 || c.apply == nil {
		panic("the row of " + r.name + " lacks its number, its format or what applies it")
	}
	if c.op != nil {
		r.op = func(cmd Command) Op { return c.op(cmd.(C)) }
	}
	if c.term != nil {
		r.term = func(cmd Command) uint64 { return c.term(cmd.(C)) }
	}
	return r
}

// commandTable finds the row of a command. It never changes.
type commandTable struct {
	rows     []*row
	byNumber [256]*row
}

// commands is the table of this program.
var commands = newCommandTable(commandRows()...) //nolint:gochecknoglobals // Immutable.

// newCommandTable returns a table of rows. It panics where two have one number.
func newCommandTable(rows ...*row) *commandTable {
	t := &commandTable{rows: rows}
	for _, r := range rows {
		if other := t.byNumber[r.number]; other != nil {
			panic(fmt.Sprintf("%s and %s have the number %d", other.name, r.name, r.number))
		}
		t.byNumber[r.number] = r
	}
	return t
}

// rowOf returns the row of a command.
func (t *commandTable) rowOf(cmd Command) (*row, error) {
	for _, r := range t.rows {
		if r.is(cmd) {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%T is not in the table of commands", cmd)
}

// rowOfFrame returns the row of a frame's command, nil for an unknown one.
func (t *commandTable) rowOfFrame(frame []byte) *row {
	if len(frame) == 0 {
		return nil
	}
	return t.byNumber[frame[0]]
}

// encode returns cmd as one frame.
func (t *commandTable) encode(cmd Command) ([]byte, error) {
	r, err := t.rowOf(cmd)
	if err != nil {
		return nil, err
	}
	frame, err := store.EncodeBehind(frameHeader, cmd)
	if err != nil {
		return nil, fmt.Errorf("encode command %d: %w", r.number, err)
	}
	if len(frame) > MaxCommand {
		return nil, compute.Errorf(compute.CodeTooLarge,
			"the request needs %d bytes in the log, at most %d fit",
			len(frame), MaxCommand).Named("command_too_large")
	}
	payload := frame[frameHeader:]
	frame[0], frame[1] = r.number, version
	binary.BigEndian.PutUint32(frame[2:], uint32(len(payload)))
	if size := r.schema.Size(payload); size > 0 && size == len(payload) {
		return frame, nil // It decodes.
	}
	if _, _, err := t.decode(frame); err != nil {
		return nil, fmt.Errorf("encode command %d: %w", r.number, err)
	}
	return frame, nil
}

// call is a command with its row.
type call struct {
	*row
	cmd Command
}

// decode returns the command of the first frame and the bytes behind it.
func (t *commandTable) decode(entry []byte) (call, []byte, error) {
	if len(entry) < frameHeader {
		return call{}, nil, errFrame
	}
	number, v, size := entry[0], entry[1], binary.BigEndian.Uint32(entry[2:])
	rest := entry[frameHeader:]
	switch {
	case size > MaxCommand-frameHeader:
		return call{}, nil, fmt.Errorf("frame of %d bytes, at most %d allowed", size, MaxCommand)
	case uint32(len(rest)) < size:
		return call{}, nil, errFrame
	case v != version:
		return call{}, nil, fmt.Errorf("command %d has version %d, known is %d", number, v, version)
	}
	r := t.byNumber[number]
	if r == nil {
		return call{}, nil, fmt.Errorf("decode command %d: unknown kind", number)
	}
	cmd, err := r.decode(rest[:size])
	if err != nil {
		return call{}, nil, fmt.Errorf("decode command %d: %w", number, err)
	}
	return call{r, cmd}, rest[size:], nil
}

// AllowedOnFullDisk reports whether the command of a frame may be committed
// although disks are full.
func AllowedOnFullDisk(frame []byte) bool {
	r := commands.rowOfFrame(frame)
	return r != nil && r.onFullDisk
}
