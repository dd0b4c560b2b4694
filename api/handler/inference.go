package handler

import (
	"context"
	"time"

	"berth/compute"
)

// Engine describes an engine of models to the API.
type Engine struct {
	Name       string
	Image      string // "" for a program of the nodes.
	HealthPath string
	GPU        bool
	StartLimit time.Duration
}

// Inference is how models are deployed.
type Inference struct {
	Engines []Engine
	// Args checks the further arguments of an engine.
	Args func(engine, text string) ([]string, error)
	// ValidModel reports whether a text names a model.
	ValidModel func(name string) bool
	Starts     int // Ends in a row after which a deployment has failed.
	// Size returns the bytes that a model's weights take on GPUs; nil and false are
	// unknown.
	Size func(ctx context.Context, m Weights) (int64, bool)
}

// Weights are those of a model, as an engine loads them.
type Weights struct {
	Org           compute.OrgID
	Engine, Model string
	Token         string // For the hub; "" for none.
	Quantization  string // By the engine, as its argument names it; "" for none.
	DType         string // Type of parameters that are not quantized, named so too; "" for the engine's choice.
}
