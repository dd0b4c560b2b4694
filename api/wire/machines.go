package wire

import "berth/compute"

// MachineTypes answers /machine-types.
type MachineTypes struct {
	MachineTypes []MachineType `json:"machine_types"`
	Count        int           `json:"count"`
}

// MachineType is one hardware profile.
type MachineType struct {
	HardwareProfile string          `json:"hardware_profile"`
	GPUType         *string         `json:"gpu_type" doc:"Null for profiles without a GPU."`
	GPUCount        int             `json:"gpu_count"`
	VRAMGB          float64         `json:"vram_gb" doc:"Of one GPU, in GiB."`
	VCPU            float64         `json:"vcpu"`
	MemoryGB        float64         `json:"memory_gb" doc:"In GiB."`
	PricePerHour    compute.Credits `json:"price_per_hour" doc:"Credits."`
	Available       int             `json:"available" doc:"How many of it could be placed now."`
	Total           int             `json:"total" doc:"How many of it an empty cluster could hold."`
}

// Pricing answers /pricing.
type Pricing struct {
	Prices []Price `json:"prices"`
	Count  int     `json:"count"`
}

// Price is one line of the price book.
type Price struct {
	MeterSlug        string    `json:"meter_slug"`
	Resource         string    `json:"resource"`
	AppliesTo        AppliesTo `json:"applies_to"`
	Unit             string    `json:"unit"`
	UnitPrice        string    `json:"unit_price" doc:"Credits, an exact decimal."`
	UnitPricePerHour string    `json:"unit_price_per_hour" doc:"Credits, an exact decimal."`
}

// AppliesTo says what a price is the price of.
type AppliesTo struct {
	HardwareProfile string `json:"hardware_profile"`
}
