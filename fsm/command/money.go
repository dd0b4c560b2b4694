package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// Grant gives credits to an organization.
	Grant struct {
		Op     Op              `cbor:"1,keyasint"`
		Actor  Actor           `cbor:"2,keyasint"` // Root or an operator.
		Org    compute.OrgID   `cbor:"3,keyasint"`
		Amount compute.Credits `cbor:"4,keyasint"`
		Note   string          `cbor:"5,keyasint,omitempty"`
	}

	// SetBudget gives an organization, one of its keys or one of its members a budget, or
	// changes it.
	SetBudget struct {
		Op     Op             `cbor:"1,keyasint"`
		Actor  Actor          `cbor:"2,keyasint"`
		Budget compute.Budget `cbor:"3,keyasint"`
	}

	// RemoveBudget removes a budget.
	RemoveBudget struct {
		Op    Op             `cbor:"1,keyasint"`
		Actor Actor          `cbor:"2,keyasint"`
		Org   compute.OrgID  `cbor:"3,keyasint"`
		Key   compute.KeyID  `cbor:"4,keyasint,omitempty"`
		User  compute.UserID `cbor:"5,keyasint,omitempty"`
	}

	// RecordPurchase adds credits that the payment provider says are paid for. A
	// checkout session counts once.
	RecordPurchase struct {
		Purchase compute.Purchase `cbor:"1,keyasint"`
	}

	// SetPrices changes prices; those not named stay.
	SetPrices struct {
		Op     Op                       `cbor:"1,keyasint"`
		Actor  Actor                    `cbor:"2,keyasint"` // Root or an operator.
		Prices map[string]compute.Price `cbor:"3,keyasint"`

		// Costs are the operator's costs of a second of resources. Those that are not
		// named keep theirs; 0 removes it.
		Costs map[string]compute.Price `cbor:"4,keyasint,omitempty"`
	}

	// RemovePrice withdraws the operator's price of a resource: it gets the price of
	// the built-in list, or the default of its type.
	RemovePrice struct {
		Op      Op            `cbor:"1,keyasint"`
		Actor   Actor         `cbor:"2,keyasint"` // Root or an operator.
		Name    string        `cbor:"3,keyasint"`
		BuiltIn compute.Price `cbor:"4,keyasint,omitempty"` // 0 if the built-in list does not name it.
	}

	// SetBillingMode turns the enforcement of credits on or off.
	SetBillingMode struct {
		Op    Op    `cbor:"1,keyasint"`
		Actor Actor `cbor:"2,keyasint"` // Root or an operator.
		Meter bool  `cbor:"3,keyasint,omitempty"`
	}

	// SetQuota replaces the quota of an organization, of one of its keys, of one of its tags
	// or of a hardware profile.
	SetQuota struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"` // Root or an operator.
		Quota compute.Quota `cbor:"3,keyasint"`
	}
)

// moneyRows returns the rows of commands about credits, budgets, prices and quotas.
func moneyRows() []*row {
	return []*row{
		payload[Grant]{
			number: 27, since: format.First,
			op: func(c Grant) Op { return c.Op },
		}.row(),
		payload[SetPrices]{
			number: 28, since: format.First,
			op:   func(c SetPrices) Op { return c.Op },
			uses: func(c SetPrices) uint64 { return formatIf(len(c.Costs) > 0, format.Containers) },
		}.row(),
		payload[SetQuota]{
			number: 33, since: format.Fairness,
			op:   func(c SetQuota) Op { return c.Op },
			uses: func(c SetQuota) uint64 { return formatIf(c.Quota.Profile != "" || c.Quota.Denied, format.Rotation) },
		}.row(),
		payload[RemovePrice]{
			number: 38, since: format.Lab, onFullDisk: true,
			op: func(c RemovePrice) Op { return c.Op },
		}.row(),
		payload[SetBillingMode]{
			number: 39, since: format.Lab, onFullDisk: true,
			op: func(c SetBillingMode) Op { return c.Op },
		}.row(),
		payload[SetBudget]{
			number: 90, since: format.Accounts,
			op: func(c SetBudget) Op { return c.Op },
		}.row(),
		payload[RemoveBudget]{
			number: 91, since: format.Accounts, onFullDisk: true,
			op: func(c RemoveBudget) Op { return c.Op },
		}.row(),
		payload[RecordPurchase]{
			number: 92, since: format.Accounts,
		}.row(),
	}
}
