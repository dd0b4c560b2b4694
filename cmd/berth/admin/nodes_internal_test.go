package admin

import (
	"testing"

	"berth/compute"
)

func TestEnginesOf(t *testing.T) {
	docker, trusted := compute.DockerOffer(false), compute.DockerOffer(true)
	for _, test := range []struct {
		offers []compute.Offer
		want   string
	}{
		{nil, "-"},
		{[]compute.Offer{compute.MountOffer, compute.ImageOffer("inference:x"), compute.VolumeOffer("sets")}, "-"},
		{[]compute.Offer{trusted, compute.ComposeOffer(true)}, "compose (trusted only), docker (trusted only)"},
		{[]compute.Offer{docker, trusted, compute.InferenceOffer("vllm")}, "docker, vllm"},
		{[]compute.Offer{trusted, docker, compute.ComposeOffer(true)}, "compose (trusted only), docker"},
	} {
		if got := enginesOf(test.offers); got != test.want {
			t.Errorf("%v are %q, want %q", test.offers, got, test.want)
		}
	}
}
