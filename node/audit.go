package node

import (
	"context"
	"path/filepath"

	"berth/api/account"
	"berth/cluster/disk"
	"berth/node/audit"
)

// auditPosition is the file in the data directory that remembers what is exported.
const auditPosition = "audit.json"

// openAudit opens the export of audit trails, if the configuration names a file.
func (n *Node) openAudit(context.Context) (err error) {
	if n.cfg.Log.AuditFile == "" {
		return nil
	}
	n.auditExport, err = audit.Open(audit.Config{
		File: n.cfg.Log.AuditFile, Position: filepath.Join(n.cfg.DataDir, auditPosition),
		View: n.machine.View, Line: account.AuditLine, Free: freeBesideState,
		Logger: n.logger.With("part", "audit"), Registerer: n.registry,
	})
	return err
}

// freeBesideState returns how many bytes the file system of a file has free, and how many of
// them are left for the state of a node.
func freeBesideState(name string) (free, margin int64, err error) {
	free, total, err := disk.Free(name)
	return free, disk.Margin(total), err
}
