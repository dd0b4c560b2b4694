package edge

import (
	"testing"

	"berth/compute"
)

// TestSilentEngineIsNotAskedAgain holds that a request to a silent engine is not repeated.
func TestSilentEngineIsNotAskedAgain(t *testing.T) {
	c := &modelCall{serviceCall: serviceCall{Server: &Server{Core: &Core{}}, r: &Request{}}}
	tries := 0
	if c.retries(t.Context(), compute.Errorf(compute.CodeUnavailable, "It is silent.").Named("engine_timeout"), &tries) {
		t.Error("it is asked again")
	}
}
