//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// NewModel is the body of PUT /admin/models/{id}.
type NewModel struct {
	Deployment string          `json:"deployment_id" required:"true" minlen:"36" maxlen:"36" doc:"Deployment that answers for the model. Its owner pays for its replicas."`
	Prompt     compute.Credits `json:"prompt_price" max:"1000" doc:"Credits for a million prompt tokens, with at most two decimals."`
	Completion compute.Credits `json:"completion_price" max:"1000" doc:"Credits for a million completion tokens, with at most two decimals."`
}

// Check holds the rules that tags cannot say.
func (m *NewModel) Check(f *Faults) {
	if _, err := compute.ParseExecutionID(m.Deployment); len(m.Deployment) == 36 && err != nil {
		f.Value("deployment_id is not that of a deployment", "body", "deployment_id")
	}
	for name, price := range map[string]compute.Credits{"prompt_price": m.Prompt, "completion_price": m.Completion} {
		if price < 0 || price > compute.MaxTokenPrice || price%(compute.Credit/100) != 0 {
			f.Value("a price is from 0 to "+compute.MaxTokenPrice.String()+
				" credits for a million tokens, with at most two decimals", "body", name)
		}
	}
}

// Model is a model that every organization may use by its id.
type Model struct {
	ID         string              `json:"id" doc:"Name by which requests ask for the model."`
	Deployment compute.ExecutionID `json:"deployment_id"`
	Root       string              `json:"hf_model_id" doc:"The model on the hub."`
	Status     string              `json:"status" doc:"Status of the deployment: pending, starting, ready, scaling, paused, failed or stopped."`
	Prompt     compute.Credits     `json:"prompt_price" doc:"Credits for a million tokens."`
	Completion compute.Credits     `json:"completion_price" doc:"Credits for a million tokens."`
	Org        compute.OrgID       `json:"org_id" doc:"The owner of the deployment, who pays for it by the second."`
	CreatedAt  compute.Instant     `json:"created_at"`
	ChangedAt  compute.Instant     `json:"changed_at"`
}

// Models answers GET /admin/models.
type Models struct {
	Models []Model `json:"models"`
	Total  int     `json:"total"`
}
