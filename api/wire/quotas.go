package wire

import "berth/compute"

// Quotas answers /user/quotas.
type Quotas struct {
	Quotas            []Quota   `json:"quotas"`
	MaxConcurrentRuns int       `json:"max_concurrent_runs" doc:"0 for any number."`
	MaxGPUs           int       `json:"max_gpus" doc:"GPUs that take work, fewer if it may hold no more; rounded up."`
	Limits            []Limit   `json:"limits" doc:"Limits and usage of the organization, its keys and its tags."`
	FairShare         FairShare `json:"fair_share"`
}

// Quota is the quota of the organization for one hardware profile.
type Quota struct {
	HardwareProfile string `json:"hardware_profile"`
	Allowed         bool   `json:"allowed"`
	MaxConcurrent   int    `json:"max_concurrent" doc:"0 for any number."`
	InUse           int    `json:"in_use"`
}

// Limit bounds the work that an organization, one of its API keys or one of its
// tags may hold at once. Executions beyond it wait, for the reason org_concurrency,
// key_concurrency, tag_concurrency or quota_gpus.
type Limit struct {
	Scope         string         `json:"scope" doc:"organization, key or tag."`
	KeyID         *compute.KeyID `json:"key_id"`
	Tag           *string        `json:"tag"`
	MaxConcurrent int            `json:"max_concurrent" doc:"Executions at once; 0 for any number."`
	InUse         int            `json:"in_use"`
	MaxGPUMilli   int64          `json:"max_gpu_milli" doc:"Thousandths of GPUs at once; 0: any."`
	GPUMilliInUse int64          `json:"gpu_milli_in_use"`
	Weight        *int           `json:"weight" doc:"Weight in fair share, organizations only."`
	Inherited     []string       `json:"inherited" doc:"Which of these come from the cluster's configuration."`
}

// FairShare is where the organization stands among the others. Within a
// priority, who has used the least for its weight comes first.
type FairShare struct {
	Weight      int             `json:"weight" doc:"100 unless the operator set another."`
	Used        compute.Credits `json:"used_credits" doc:"Price of what its executions held, decayed."`
	HeldPerHour compute.Credits `json:"held_credits_per_hour" doc:"Price of what they hold now, an hour of it."`
}

// NewQuota is the body of POST /admin/quotas.
type NewQuota struct {
	Org           string `json:"org" required:"true" minlen:"1" maxlen:"64" doc:"Slug of the organization."`
	KeyID         string `json:"key_id" maxlen:"36" doc:"One of its API keys: the quota is of what that key starts."`
	Tag           string `json:"tag" maxlen:"64" doc:"One of its tags: the quota is of what carries it."`
	MaxConcurrent int    `json:"max_concurrent" default:"0" min:"0" max:"1000000" doc:"At once; 0: the default."`
	MaxGPUMilli   int    `json:"max_gpu_milli" default:"0" min:"0" max:"1000000000" doc:"Thousandths of GPUs; 0: any."`
	Weight        int    `json:"weight" default:"0" min:"0" max:"10000" doc:"Weight in fair share; 0: 100."`
}

// Check holds the rules that tags cannot say.
func (q *NewQuota) Check(f *Faults) {
	if q.KeyID != "" && q.Tag != "" {
		f.Value("a quota is of an organization, of one of its keys or of one of its tags", "body", "tag")
	}
	if _, err := compute.ParseKeyID(q.KeyID); q.KeyID != "" && err != nil {
		f.Value("not the id of an API key", "body", "key_id")
	}
	if q.Weight > 0 && (q.KeyID != "" || q.Tag != "") {
		f.Value("only an organization has a weight", "body", "weight")
	}
}

// QuotaQuery selects the organization of GET /admin/quotas.
type QuotaQuery struct {
	Org string `json:"org" required:"true" minlen:"1" maxlen:"64" doc:"Slug of the organization."`
}

// OrgQuotas answers /admin/quotas.
type OrgQuotas struct {
	Org       string    `json:"org" doc:"Slug."`
	Limits    []Limit   `json:"limits"`
	FairShare FairShare `json:"fair_share"`
}
