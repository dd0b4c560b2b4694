package fsm

import "fmt"

// Kind returns KindClock.
func (Clock) Kind() Kind { return KindClock }

// Kind returns KindBootstrap.
func (Bootstrap) Kind() Kind { return KindBootstrap }

// Kind returns KindSetSettings.
func (SetSettings) Kind() Kind { return KindSetSettings }

// Kind returns KindRegisterNode.
func (RegisterNode) Kind() Kind { return KindRegisterNode }

// Kind returns KindSetInventory.
func (SetInventory) Kind() Kind { return KindSetInventory }

// Kind returns KindSetNodeState.
func (SetNodeState) Kind() Kind { return KindSetNodeState }

// Kind returns KindDrainNode.
func (DrainNode) Kind() Kind { return KindDrainNode }

// Kind returns KindRemoveNode.
func (RemoveNode) Kind() Kind { return KindRemoveNode }

// Kind returns KindCreateJoinToken.
func (CreateJoinToken) Kind() Kind { return KindCreateJoinToken }

// Kind returns KindCreateUser.
func (CreateUser) Kind() Kind { return KindCreateUser }

// Kind returns KindCreateKey.
func (CreateKey) Kind() Kind { return KindCreateKey }

// Kind returns KindToggleKey.
func (ToggleKey) Kind() Kind { return KindToggleKey }

// Kind returns KindDeleteKey.
func (DeleteKey) Kind() Kind { return KindDeleteKey }

// Kind returns KindRegenerateKey.
func (RegenerateKey) Kind() Kind { return KindRegenerateKey }

// Kind returns KindTouchKeys.
func (TouchKeys) Kind() Kind { return KindTouchKeys }

// Kind returns KindStoreRefresh.
func (StoreRefresh) Kind() Kind { return KindStoreRefresh }

// Kind returns KindRotateRefresh.
func (RotateRefresh) Kind() Kind { return KindRotateRefresh }

// Kind returns KindRevokeRefresh.
func (RevokeRefresh) Kind() Kind { return KindRevokeRefresh }

// Kind returns KindSubmit.
func (Submit) Kind() Kind { return KindSubmit }

// Kind returns KindTakeSelection.
func (TakeSelection) Kind() Kind { return KindTakeSelection }

// Kind returns KindCommitPlan.
func (CommitPlan) Kind() Kind { return KindCommitPlan }

// Kind returns KindStartAttempt.
func (StartAttempt) Kind() Kind { return KindStartAttempt }

// Kind returns KindFinishAttempt.
func (FinishAttempt) Kind() Kind { return KindFinishAttempt }

// Kind returns KindLoseAttempts.
func (LoseAttempts) Kind() Kind { return KindLoseAttempts }

// Kind returns KindStopExecution.
func (StopExecution) Kind() Kind { return KindStopExecution }

// Kind returns KindDeleteExecution.
func (DeleteExecution) Kind() Kind { return KindDeleteExecution }

// Kind returns KindGrant.
func (Grant) Kind() Kind { return KindGrant }

// Kind returns KindSetPrices.
func (SetPrices) Kind() Kind { return KindSetPrices }

// Kind returns KindAddSigningKey.
func (AddSigningKey) Kind() Kind { return KindAddSigningKey }

// Kind returns KindTick.
func (Tick) Kind() Kind { return KindTick }

// Kind returns KindRecordEstimates.
func (RecordEstimates) Kind() Kind { return KindRecordEstimates }

// Kind returns KindStopCandidates.
func (StopCandidates) Kind() Kind { return KindStopCandidates }

// Kind returns KindSetQuota.
func (SetQuota) Kind() Kind { return KindSetQuota }

// Kind returns KindSetFormat.
func (SetFormat) Kind() Kind { return KindSetFormat }

// Kind returns KindRaiseEpoch.
func (RaiseEpoch) Kind() Kind { return KindRaiseEpoch }

// Kind returns KindSetBrake.
func (SetBrake) Kind() Kind { return KindSetBrake }

// Kind returns KindArchive.
func (ArchiveExecutions) Kind() Kind { return KindArchive }

// decodePayload returns the command of a frame's payload.
//
//nolint:funlen // A case for each kind.
func decodePayload(kind Kind, payload []byte) (Command, error) {
	switch kind {
	case KindClock:
		return decodeAs[Clock](payload)
	case KindBootstrap:
		return decodeAs[Bootstrap](payload)
	case KindSetSettings:
		return decodeAs[SetSettings](payload)
	case KindRegisterNode:
		return decodeAs[RegisterNode](payload)
	case KindSetInventory:
		return decodeAs[SetInventory](payload)
	case KindSetNodeState:
		return decodeAs[SetNodeState](payload)
	case KindDrainNode:
		return decodeAs[DrainNode](payload)
	case KindRemoveNode:
		return decodeAs[RemoveNode](payload)
	case KindCreateJoinToken:
		return decodeAs[CreateJoinToken](payload)
	case KindCreateUser:
		return decodeAs[CreateUser](payload)
	case KindCreateKey:
		return decodeAs[CreateKey](payload)
	case KindToggleKey:
		return decodeAs[ToggleKey](payload)
	case KindDeleteKey:
		return decodeAs[DeleteKey](payload)
	case KindRegenerateKey:
		return decodeAs[RegenerateKey](payload)
	case KindTouchKeys:
		return decodeAs[TouchKeys](payload)
	case KindStoreRefresh:
		return decodeAs[StoreRefresh](payload)
	case KindRotateRefresh:
		return decodeAs[RotateRefresh](payload)
	case KindRevokeRefresh:
		return decodeAs[RevokeRefresh](payload)
	case KindSubmit:
		return decodeAs[Submit](payload)
	case KindTakeSelection:
		return decodeAs[TakeSelection](payload)
	case KindCommitPlan:
		return decodeAs[CommitPlan](payload)
	case KindStartAttempt:
		return decodeAs[StartAttempt](payload)
	case KindFinishAttempt:
		return decodeAs[FinishAttempt](payload)
	case KindLoseAttempts:
		return decodeAs[LoseAttempts](payload)
	case KindStopExecution:
		return decodeAs[StopExecution](payload)
	case KindDeleteExecution:
		return decodeAs[DeleteExecution](payload)
	case KindGrant:
		return decodeAs[Grant](payload)
	case KindSetPrices:
		return decodeAs[SetPrices](payload)
	case KindAddSigningKey:
		return decodeAs[AddSigningKey](payload)
	case KindTick:
		return decodeAs[Tick](payload)
	case KindRecordEstimates:
		return decodeAs[RecordEstimates](payload)
	case KindStopCandidates:
		return decodeAs[StopCandidates](payload)
	case KindSetQuota:
		return decodeAs[SetQuota](payload)
	case KindSetFormat:
		return decodeAs[SetFormat](payload)
	case KindRaiseEpoch:
		return decodeAs[RaiseEpoch](payload)
	case KindSetBrake:
		return decodeAs[SetBrake](payload)
	case KindArchive:
		return decodeAs[ArchiveExecutions](payload)
	}
	return nil, fmt.Errorf("unknown kind")
}
