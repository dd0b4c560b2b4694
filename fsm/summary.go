package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"berth/compute"
	"berth/fsm/store"
)

// Summary is a state in numbers, by which two copies of it can be compared.
type Summary struct {
	Hash string `json:"hash"` // Hash of the whole state, in hex.

	Nodes      int            `json:"nodes"`
	Orgs       int            `json:"organizations"`
	Users      int            `json:"users"`
	Keys       int            `json:"api_keys"`
	Executions int            `json:"executions"`           // In the state.
	ByStatus   map[string]int `json:"executions_by_status"` // Those that occur.
	Live       int            `json:"live_attempts"`
	Entries    int            `json:"ledger_entries"`
	Archives   int            `json:"archives"`            // Their blobs are not in the state.
	Archived   int            `json:"archived_executions"` // In those.

	Granted compute.Credits `json:"granted"` // Sums over all organizations.
	Charged compute.Credits `json:"charged"`
	Balance compute.Credits `json:"balance"`
	Held    compute.Credits `json:"held"`
}

// TableSums returns the sum of each table's records by the table's name, and that of
// the meta record as "meta". Two replicas of the same index differ in the tables whose
// sums differ.
func (v *View) TableSums() map[string]string {
	tables := v.stored()
	sums := make(map[string]string, len(tables)+1)
	meta := sha256.Sum256(store.MustEncode(&v.meta))
	sums["meta"] = hex.EncodeToString(meta[:8])
	for i, name := range storedNames() {
		_, s := tables[i].Digest()
		sums[name] = hex.EncodeToString(binary.BigEndian.AppendUint64(nil, s[0]))
	}
	return sums
}

// Summary counts the records of the state, and adds up the credits.
func (v *View) Summary() Summary {
	hash := v.Hash()
	sum := Summary{
		Hash: hex.EncodeToString(hash[:]), Nodes: v.nodes.Len(), Orgs: v.orgs.Len(), Users: v.users.Len(), Keys: v.keys.Len(),
		Executions: v.executions.Len(), ByStatus: make(map[string]int), Live: v.work.Len(), Entries: v.ledger.Len(),
	}
	sum.Archives, sum.Archived = v.Archived()
	for status, byKind := range v.counts.executions {
		n := 0
		for _, count := range byKind {
			n += count
		}
		if n > 0 {
			sum.ByStatus[compute.Status(status).String()] = n
		}
	}
	for a := range v.accounts.Values() {
		sum.Granted += a.Granted
		sum.Charged += a.Charged
		sum.Balance += a.Balance
		sum.Held += a.Held
	}
	return sum
}
