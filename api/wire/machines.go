//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// MachineTypes answers /machine-types.
type MachineTypes struct {
	MachineTypes []MachineType `json:"machine_types"`
	Count        int           `json:"count"`
}

// MachineType is one hardware profile.
type MachineType struct {
	HardwareProfile string              `json:"hardware_profile"`
	GPUType         *string             `json:"gpu_type" doc:"Null for profiles without a GPU."`
	GPUCount        int                 `json:"gpu_count"`
	MIG             *string             `json:"mig" doc:"The MIG slice that it is, such as 1g.5gb; null for GPUs that are not cut."`
	VRAMGB          float64             `json:"vram_gb" doc:"Memory of one GPU or slice, in GiB; the smallest that there is."`
	Isolation       *string             `json:"isolation" doc:"Whether the hardware keeps executions apart: enforced or advisory, the weaker where nodes differ; null without GPU."`
	IsolationBy     *string             `json:"isolation_by" doc:"How GPUs are isolated: device, mig, mig_compute, time_slicing or simulated."`
	ShareIsolation  *string             `json:"share_isolation" doc:"The isolation that a share of its GPU would have, as in gpu.a100.500m; null where there are none."`
	VCPU            float64             `json:"vcpu"`
	MemoryGB        float64             `json:"memory_gb" doc:"In GiB."`
	Capability      *string             `json:"compute_capability" doc:"CUDA compute capability, such as 8.9, the lowest of its GPUs; null where unknown or without GPU."`
	BFloat16        *bool               `json:"bfloat16" doc:"Whether its GPUs compute in bfloat16; null where unknown or without GPU."`
	PricePerHour    compute.Credits     `json:"price_per_hour" doc:"Credits."`
	PriceSource     compute.PriceSource `json:"price_source" doc:"operator, built-in, or default: derived from the memory of the GPU type."`
	Available       int                 `json:"available" doc:"How many of it could be placed now."`
	Total           int                 `json:"total" doc:"How many of it an empty cluster could hold."`
}

// Pricing answers /pricing.
type Pricing struct {
	Prices []Price `json:"prices"`
	Count  int     `json:"count"`
}

// Price is one line of the price book.
type Price struct {
	MeterSlug        string              `json:"meter_slug" doc:"run_running for executions, deployment_running for each replica of a deployment, or serverless_inference_prompt_tokens and serverless_inference_completion_tokens."`
	Resource         string              `json:"resource"`
	AppliesTo        AppliesTo           `json:"applies_to"`
	Unit             string              `json:"unit" doc:"second or token."`
	UnitPrice        string              `json:"unit_price" doc:"Credits, an exact decimal."`
	UnitPricePerHour string              `json:"unit_price_per_hour" doc:"Credits, an exact decimal; empty for tokens."`
	Source           compute.PriceSource `json:"source" doc:"operator, built-in, or default: derived from the memory of the GPU type."`
}

// AppliesTo names the hardware or the model that a price is for.
type AppliesTo struct {
	HardwareProfile string               `json:"hardware_profile,omitempty" doc:"The hardware profile, for prices of hardware."`
	Deployment      *compute.ExecutionID `json:"deployment_id,omitempty" doc:"For prices of tokens, the deployment that answers for the model. Else the deployment of the caller's organization whose replicas keep this price."`
}

// CapabilityOf returns the compute capability of a GPU and whether it computes in
// bfloat16, null where unknown.
func CapabilityOf(g *compute.GPU) (name *string, bfloat16 *bool) {
	if g.Capability <= 0 {
		return nil, nil
	}
	return new(g.CapabilityName()), new(g.BFloat16())
}
