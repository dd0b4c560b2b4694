package fsm

import (
	"errors"
	"fmt"

	"berth/compute"
)

// Check returns what is wrong with the state, nil when every invariant holds.
// It reads everything, so it is for tests and for a state that was restored.
func (v *View) Check() error {
	return errors.Join(v.checkLedger())
}

func (v *View) checkLedger() error {
	held := make(map[compute.OrgID]compute.Credits)
	for e := range v.executions.values() {
		held[e.Org] += e.Held
	}
	var total compute.Credits
	for a := range v.accounts.values() {
		total += a.Held
		if a.Held != held[a.Org] {
			return fmt.Errorf("organization %s: %s held, its executions hold %s", a.Org, a.Held, held[a.Org])
		}
		if err := v.VerifyLedger(a.Org); err != nil {
			return err
		}
	}
	if total != v.counts.held {
		return fmt.Errorf("%s held, counted %s", total, v.counts.held)
	}
	return nil
}
