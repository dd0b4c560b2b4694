package fsm

// Relieves reports whether the command of a frame may be committed although
// disks are full: because it ends, frees or takes away something, because the
// leader needs it to lead, or because without it nobody could sign in to make
// room. Everything else makes the state grow and waits.
func Relieves(frame []byte) bool {
	if len(frame) == 0 {
		return false
	}
	switch Kind(frame[0]) {
	case KindClock, KindTick, KindSetSettings, KindSetFormat,
		KindSetNodeState, KindSetInventory, KindDrainNode, KindRemoveNode,
		KindToggleKey, KindDeleteKey, KindStoreRefresh, KindRotateRefresh, KindRevokeRefresh,
		KindStartAttempt, KindFinishAttempt, KindLoseAttempts,
		KindStopExecution, KindStopCandidates, KindDeleteExecution,
		KindSetBrake, KindRaiseEpoch:
		return true
	default:
		return false
	}
}
