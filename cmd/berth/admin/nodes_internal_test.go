package admin

import (
	"testing"

	"berth/api/wire"
	"berth/compute"
)

func TestEnginesOf(t *testing.T) {
	docker, trusted := compute.DockerOffer(false), compute.DockerOffer(true)
	const silent = "the Docker engine has not answered since 2026-01-02T03:04:05.006Z"
	for _, test := range []struct {
		offers []compute.Offer
		fault  string
		want   string
	}{
		{nil, "", "-"},
		{[]compute.Offer{compute.MountOffer, compute.ImageOffer("inference:x"), compute.VolumeOffer("sets")}, "", "-"},
		{[]compute.Offer{trusted, compute.ComposeOffer(true)}, "", "compose (trusted only), docker (trusted only)"},
		{[]compute.Offer{docker, trusted, compute.InferenceOffer("vllm")}, "", "docker, vllm"},
		{[]compute.Offer{trusted, docker, compute.ComposeOffer(true)}, "", "compose (trusted only), docker"},
		{[]compute.Offer{docker, trusted}, silent, "docker (" + silent + ")"},
	} {
		if got := enginesOf(wire.Node{Offers: test.offers, EngineFault: test.fault}); got != test.want {
			t.Errorf("%v are %q, want %q", test.offers, got, test.want)
		}
	}
}
