package wire

import "berth/compute"

// Quotas answers /user/quotas.
type Quotas struct {
	Quotas            []Quota   `json:"quotas"`
	MaxConcurrentRuns int       `json:"max_concurrent_runs" doc:"0 for any number."`
	MaxGPUs           int       `json:"max_gpus" doc:"GPUs that take work, fewer if it may hold no more; rounded up."`
	Limits            []Limit   `json:"limits" doc:"Limits and usage of the organization, its keys, tags and hardware."`
	FairShare         FairShare `json:"fair_share"`
}

// Quota is the quota of the organization for one hardware profile.
type Quota struct {
	HardwareProfile string `json:"hardware_profile"`
	Allowed         bool   `json:"allowed" doc:"Whether the organization may use it."`
	MaxConcurrent   int    `json:"max_concurrent" doc:"The lowest limit that counts it; 0 for any number."`
	InUse           int    `json:"in_use" doc:"Executions that have a place on it."`
}

// Limit bounds the work that an organization, one of its API keys, one of its tags or
// its work on a hardware profile may hold at once. Executions beyond it wait, for the reason
// org_concurrency, key_concurrency, tag_concurrency, profile_concurrency or quota_gpus. Work on a
// hardware profile that is not allowed is refused (profile_denied).
type Limit struct {
	Scope         string         `json:"scope" doc:"organization, key, tag or hardware_profile."`
	KeyID         *compute.KeyID `json:"key_id"`
	Tag           *string        `json:"tag"`
	Profile       *string        `json:"hardware_profile" doc:"One without a size stands for all sizes of its type."`
	Allowed       bool           `json:"allowed" doc:"false for a hardware profile that it may not use."`
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
	Profile       string `json:"hardware_profile" maxlen:"64" doc:"Such as gpu.h100.8x, or gpu.h100 for all sizes."`
	Allowed       *bool  `json:"allowed" doc:"false: the organization may not use the hardware profile."`
	MaxConcurrent int    `json:"max_concurrent" default:"0" min:"0" max:"1000000" doc:"At once; 0: the default."`
	MaxGPUMilli   int    `json:"max_gpu_milli" default:"0" min:"0" max:"1000000000" doc:"Thousandths of GPUs; 0: any."`
	Weight        int    `json:"weight" default:"0" min:"0" max:"10000" doc:"Weight in fair share; 0: 100."`
}

// Check holds the rules that tags cannot say.
func (q *NewQuota) Check(f *Faults) {
	if q.KeyID != "" && q.Tag != "" || q.Profile != "" && (q.KeyID != "" || q.Tag != "") {
		f.Value("a quota is of an organization, one of its keys, one of its tags or a hardware profile", "body", "tag")
	}
	if _, err := compute.ParseProfile(q.Profile); q.Profile != "" && err != nil {
		f.Value(err.Error(), "body", "hardware_profile")
	}
	if denied := q.Allowed != nil && !*q.Allowed; denied && (q.Profile == "" || q.MaxConcurrent > 0 || q.MaxGPUMilli > 0) {
		f.Value("a hardware profile, and nothing else, is denied; then it has no limits", "body", "allowed")
	}
	if _, err := compute.ParseKeyID(q.KeyID); q.KeyID != "" && err != nil {
		f.Value("not the id of an API key", "body", "key_id")
	}
	if q.Weight > 0 && (q.KeyID != "" || q.Tag != "" || q.Profile != "") {
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
