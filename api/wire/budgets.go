//nolint:lll // A field and its rules are one line.
package wire

import (
	"net/url"
	"strings"

	"berth/compute"
)

// NewBudget is the body of PUT /orgs/{slug}/budgets.
type NewBudget struct {
	KeyID       string          `json:"key_id" maxlen:"36" doc:"An API key of the organization."`
	UserID      string          `json:"user_id" maxlen:"36" doc:"A member. Without key_id and user_id the budget is the organization's."`
	MaxCredits  compute.Credits `json:"max_credits" required:"true" gt:"0"`
	Period      string          `json:"period" default:"\"total\"" enum:"total,month" doc:"Time that counts: everything from now on, or each month, UTC."`
	Enforce     bool            `json:"enforce" default:"false" doc:"Whether it is a ceiling: work that may exceed it is refused, or stopped."`
	CallbackURL string          `json:"callback_url" maxlen:"2048" doc:"An https URL that is notified at 50, 80 and 100 percent; once, with the highest, when several are passed together."`
}

// Check holds the rules that tags cannot say.
func (b *NewBudget) Check(f *Faults) {
	if b.KeyID != "" && b.UserID != "" {
		f.Value("a budget is of a key or of a member, not of both", "body", "user_id")
	}
	u, err := url.Parse(b.CallbackURL)
	if b.CallbackURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || strings.Contains(b.CallbackURL, "${{")) {
		f.Value("not an https URL", "body", "callback_url")
	}
}

// Budget is the budget of an organization, of one of its API keys or of one of its
// members.
type Budget struct {
	Scope       string          `json:"scope" enum:"organization,key,member"`
	KeyID       *compute.KeyID  `json:"key_id"`
	UserID      *compute.UserID `json:"user_id"`
	MaxCredits  compute.Credits `json:"max_credits"`
	Period      string          `json:"period" enum:"total,month"`
	Enforce     bool            `json:"enforce"`
	CallbackURL *string         `json:"callback_url"`
	Charged     compute.Credits `json:"charged_credits" doc:"Since the budget was set, or in this month."`
	Held        compute.Credits `json:"held_credits" doc:"Set aside for executions that have not ended."`
	Level       int             `json:"level_percent" doc:"The highest of 50, 80 and 100 percent that was reached; 0 for none."`
	ChangedAt   compute.Instant `json:"changed_at"`
}

// BudgetAlert is the body of a callback when a budget has reached a level.
type BudgetAlert struct {
	Event       string               `json:"event"` // "budget.reached".
	OrgID       compute.OrgID        `json:"org_id"`
	Scope       string               `json:"scope"`
	KeyID       *compute.KeyID       `json:"key_id"`
	UserID      *compute.UserID      `json:"user_id"`
	Level       int                  `json:"level_percent"`
	Charged     compute.Credits      `json:"charged_credits"` // While work runs with what it has used up.
	MaxCredits  compute.Credits      `json:"max_credits"`
	Period      string               `json:"period"`
	Stopped     bool                 `json:"stopped"`      // The execution was stopped at this ceiling.
	ExecutionID *compute.ExecutionID `json:"execution_id"` // Reached it; null for tokens of serverless models.
	At          compute.Instant      `json:"at"`
}

// WholeOrg is the scope of an organization's own budget, and its name in a path.
const WholeOrg = "organization"

// BudgetPeriod returns the time that counts for a budget.
func BudgetPeriod(monthly bool) string {
	if monthly {
		return "month"
	}
	return "total"
}

// BudgetScope returns whose a budget is: a key's, a member's or the organization's.
func BudgetScope(key compute.KeyID, user compute.UserID) (string, *compute.KeyID, *compute.UserID) {
	switch {
	case !key.IsZero():
		return "key", &key, nil
	case !user.IsZero():
		return "member", nil, &user
	}
	return WholeOrg, nil, nil
}
