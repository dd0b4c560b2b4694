package policy

import (
	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"berth/node/executor/sandbox"
)

// Rights, by the ABI version that introduced them.
const (
	rightsV1 = landlock.AccessFSExecute | landlock.AccessFSWriteFile | landlock.AccessFSReadFile |
		landlock.AccessFSReadDir | landlock.AccessFSRemoveDir | landlock.AccessFSRemoveFile |
		landlock.AccessFSMakeChar | landlock.AccessFSMakeDir | landlock.AccessFSMakeReg |
		landlock.AccessFSMakeSock | landlock.AccessFSMakeFifo | landlock.AccessFSMakeBlock |
		landlock.AccessFSMakeSym
	rightsV2 = rightsV1 | landlock.AccessFSRefer
	rightsV3 = rightsV2 | landlock.AccessFSTruncate
	rightsV5 = rightsV3 | landlock.AccessFSIoctlDev

	readRights   = landlock.AccessFSExecute | landlock.AccessFSReadFile | landlock.AccessFSReadDir
	deviceNodes  = landlock.AccessFSMakeChar | landlock.AccessFSMakeBlock
	deviceRights = landlock.AccessFSReadFile | landlock.AccessFSWriteFile | landlock.AccessFSReadDir |
		landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
	fileRights = landlock.AccessFSExecute | landlock.AccessFSWriteFile | landlock.AccessFSReadFile |
		landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
	scopes = landlock.ScopeAbstractUnixSocket | landlock.ScopeSignal
)

// Landlock returns the rules that this kernel supports, and its ABI version. The
// version is 0 when it has no Landlock: then the mounts alone restrict the code.
func Landlock() (rules sandbox.Landlock, abi int) {
	abi, err := landlock.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return sandbox.Landlock{}, 0
	}
	handled := uint64(rightsV1)
	switch {
	case abi >= 5:
		handled = rightsV5
	case abi >= 3:
		handled = rightsV3
	case abi == 2:
		handled = rightsV2
	}
	rules = sandbox.Landlock{
		Handled:    handled,
		Everywhere: readRights & handled,
		Writable:   handled &^ uint64(deviceNodes),
		Device:     deviceRights & handled,
		FileMask:   fileRights,
	}
	if abi >= 6 {
		rules.Scoped = scopes
	}
	return rules, abi
}
