package repair

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"berth/compute"
	"berth/fsm"
)

// Ledger is the result for an organization's ledger in a backup.
type Ledger struct {
	Org     string          `json:"org"`
	Deleted bool            `json:"deleted"`
	Lines   uint64          `json:"lines"`
	Balance compute.Credits `json:"balance"`
	Held    compute.Credits `json:"held"`
	Head    compute.Hash    `json:"-"`
	Hash    string          `json:"head"`
	Fault   string          `json:"fault,omitempty"` // The rule that is broken; "" if all hold.
}

// VerifyLedgers verifies the ledgers in a backup: its checksums, the chain of each ledger
// and that the lines add up to the accounts. With an earlier backup of the same cluster
// it also checks that every ledger continues the earlier one, so that a ledger which was
// rewritten is found although it is sound by itself.
func VerifyLedgers(path, earlier string) ([]Ledger, error) {
	_, machine, err := readBackup(path)
	if err != nil {
		return nil, err
	}
	view := machine.View()
	var before *fsm.View
	if earlier != "" {
		_, old, err := readBackup(earlier)
		if err != nil {
			return nil, err
		}
		if before = old.View(); before.ClusterID() != view.ClusterID() {
			return nil, errors.New("the backups are of different clusters")
		}
	}
	var out []Ledger
	for o := range view.Orgs() {
		a := view.Account(o.ID)
		l := Ledger{
			Org: o.Slug, Deleted: !o.DeletedAt.IsZero(), Lines: a.Seq, Balance: a.Balance, Held: a.Held,
			Head: a.Head, Hash: fmt.Sprintf("%x", a.Head[:]),
		}
		err := view.VerifyLedger(o.ID)
		if err == nil && before != nil {
			err = continues(view, before.Account(o.ID))
		}
		if err != nil {
			l.Fault = err.Error()
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Ledger) int { return cmp.Or(cmp.Compare(a.Org, b.Org), cmp.Compare(a.Hash, b.Hash)) })
	return out, nil
}

// continues checks that a ledger has the lines that an earlier account ended with.
func continues(view *fsm.View, before *compute.Account) error {
	if before.Seq == 0 {
		return nil
	}
	for line := range view.Ledger(before.Org, before.Seq-1) {
		if line.Seq == before.Seq && line.Hash == before.Head {
			return nil
		}
		break
	}
	return fmt.Errorf("ledger of %s: line %d is not the one of the earlier backup", before.Org, before.Seq)
}
