package fsm

import "berth/fsm/command"

// appliers lists what applies each command. A command without a line here does not
// start.
//
//nolint:funlen // A line for each command.
func appliers() []applier {
	return []applier{
		by((*state).raiseClock),
		by((*state).bootstrap),
		by((*state).setSettings),
		by((*state).registerNode),
		by((*state).setInventory),
		by((*state).setNodeState),
		by((*state).drainNode),
		by((*state).removeNode),
		by((*state).createJoinToken),
		by((*state).createUser),
		by((*state).createKey),
		by((*state).toggleKey),
		by((*state).deleteKey),
		by((*state).regenerateKey),
		by((*state).touchKeys),
		by((*state).storeRefresh),
		by((*state).rotateRefresh),
		by((*state).revokeRefresh),
		by((*state).submit),
		by((*state).takeSelection),
		by((*state).commitPlan),
		by((*state).startAttempt),
		by((*state).finishAttempt),
		by((*state).loseAttempts),
		by((*state).stopExecution),
		by((*state).deleteExecution),
		by((*state).grant),
		by((*state).setPrices),
		by((*state).addSigningKey),
		by(func(s *state, _ command.Tick) command.Result { return s.tick() }),
		by((*state).recordEstimates),
		by((*state).stopCandidates),
		by((*state).setQuota),
		by((*state).setFormat),
		by((*state).setBrake),
		by((*state).raiseEpoch),
		by((*state).archiveExecutions),
		by((*state).removePrice),
		by((*state).setBillingMode),
		by((*state).createUpload),
		by((*state).receiveChunks),
		by((*state).commitUpload),
		by((*state).setUser),
		by((*state).setMember),
		by((*state).removeMember),
		by((*state).recordDeliveries),
		by((*state).redeliver),
		by((*state).startReplicas),
		by((*state).scaleService),
		by((*state).setReady),
		by((*state).putVariables),
		by((*state).removeVariables),
		by((*state).createOrg),
		by((*state).setOrg),
		by((*state).deleteOrg),
		by((*state).setDefaultOrg),
		by((*state).putInvite),
		by((*state).revokeInvite),
		by((*state).answerInvite),
		by((*state).deleteUser),
		by((*state).createEnvironment),
		by((*state).deleteEnvironment),
		by((*state).reportEnvironment),
		by((*state).trustOrg),
		by((*state).completeExecution),
		by(func(s *state, c command.CreateBucket) command.Result { return s.object.createBucket(c) }),
		by(func(s *state, c command.PutObject) command.Result { return s.object.put(c) }),
		by(func(s *state, c command.DeleteObjects) command.Result { return s.object.remove(c) }),
		by(func(s *state, c command.StartObjectUpload) command.Result { return s.object.start(c) }),
		by(func(s *state, c command.PutObjectPart) command.Result { return s.object.putPart(c) }),
		by(func(s *state, c command.AbortObjectUpload) command.Result { return s.object.abort(c) }),
		by(func(s *state, c command.SetBucketLimits) command.Result { return s.object.setLimits(c) }),
		by((*state).setCallbackSecret),
		by((*state).removeCallbackSecret),
		by((*state).setBudget),
		by((*state).removeBudget),
		by((*state).recordPurchase),
		by((*state).recordDeed),
		by((*state).signUp),
		by((*state).linkUser),
		by((*state).rotateKey),
		by((*state).sealWith),
		by((*state).rotateRootToken),
		by((*state).resealKeys),
		by(func(s *state, c command.ArchiveOutputs) command.Result { return s.retention.archiveOutputs(c) }),
		by(func(s *state, c command.TrimOutputs) command.Result { return s.retention.trimOutputs(c) }),
		by((*state).changeDeployment),
		by((*state).scaleDeployment),
		by((*state).resumeDeployment),
		by((*state).updateDeployment),
		by((*state).surgeService),
		by((*state).setModel),
		by((*state).removeModel),
		by((*state).settleTokens),
	}
}

// applier applies the commands of one type.
type applier struct {
	of    func(command.Command) bool
	apply func(*state, command.Command) command.Result
}

// by returns the applier of commands C.
func by[C any](apply func(*state, C) command.Result) applier {
	return applier{
		of:    func(cmd command.Command) bool { _, is := cmd.(C); return is },
		apply: func(s *state, cmd command.Command) command.Result { return apply(s, cmd.(C)) },
	}
}

// applierTable has what applies a command at the command's number. It never changes.
type applierTable [256]func(*state, command.Command) command.Result

// applied is the table of this program.
var applied = newApplierTable(appliers()...) //nolint:gochecknoglobals // Immutable.

// newApplierTable returns a table of list. It panics unless each command has one applier.
func newApplierTable(list ...applier) *applierTable {
	t := new(applierTable)
	for _, c := range command.All() {
		for _, a := range list {
			if !a.of(c.Command) {
				continue
			}
			if t[c.Number()] != nil {
				panic("there are two ways to apply " + c.Name())
			}
			t[c.Number()] = a.apply
		}
		if t[c.Number()] == nil {
			panic("nothing applies " + c.Name())
		}
	}
	return t
}
