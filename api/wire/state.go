//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// StateQuery are the parameters of GET /admin/state.
type StateQuery struct {
	Check bool `json:"check" default:"false" doc:"Also hold every invariant against the whole state, which takes a while where it is large."`
}

// State answers GET /admin/state: the replica of the node that was asked.
type State struct {
	Index  uint64          `json:"index" doc:"Raft index of the last entry that it has applied."`
	Term   uint64          `json:"term" doc:"Term of the leader that the state knows."`
	Now    compute.Instant `json:"now" doc:"The state's clock."`
	Format uint64          `json:"format" doc:"Format of the state: which commands there may be."`
	Hash   string          `json:"hash" doc:"Hash of the whole state, in hex. Replicas with the same index have the same."`

	Tables map[string]string `json:"tables" doc:"A sum of each table's records, in hex: where replicas with the same index differ."`

	Executions    int `json:"executions" doc:"Those that are not in archives."`
	Archives      int `json:"archives" doc:"Blobs of executions that ended long ago."`
	Archived      int `json:"archived_executions" doc:"Executions in them."`
	LiveAttempts  int `json:"live_attempts"`
	LedgerEntries int `json:"ledger_entries"`
	Callbacks     int `json:"callbacks" doc:"Callbacks that still have to be sent."`

	Granted compute.Credits `json:"granted_credits" doc:"Ever, to all organizations."`
	Charged compute.Credits `json:"charged_credits" doc:"Ever, to all organizations."`
	Balance compute.Credits `json:"balance_credits" doc:"Credits that were granted and not charged."`
	Held    compute.Credits `json:"held_credits" doc:"Set aside for executions that have not ended."`

	Checked bool   `json:"checked" doc:"Whether the invariants were checked."`
	Detail  string `json:"detail" doc:"The broken invariant; empty if all hold."`
}
