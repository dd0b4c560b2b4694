package client

import (
	"context"
	"net/http"
)

// MachineType is a hardware profile that executions may ask for.
type MachineType struct {
	HardwareProfile string  `json:"hardware_profile"`
	GPUType         *string `json:"gpu_type"`
	GPUCount        int     `json:"gpu_count"`
	VRAMGB          float64 `json:"vram_gb"`
	VCPU            float64 `json:"vcpu"`
	MemoryGB        float64 `json:"memory_gb"`
	PricePerHour    float64 `json:"price_per_hour"`
	Available       int     `json:"available"`
	Total           int     `json:"total"`
}

// MachineTypes returns every hardware profile of the cluster.
func (c *Client) MachineTypes(ctx context.Context) ([]MachineType, error) {
	var out struct {
		MachineTypes []MachineType `json:"machine_types"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/machine-types", out: &out})
	return out.MachineTypes, err
}
