package cluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"
	"time"

	"berth/cluster/pki"
	"berth/cluster/rpc"
	"berth/compute"
)

// FuzzJoinRequest reads the request to join of a machine without a certificate. An accepted
// request gets a certificate for its own key, in its own name.
func FuzzJoinRequest(f *testing.F) {
	codec := rpc.NewCodec()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	ca, err := pki.NewCA(rand.Reader, compute.UUID{1}, now)
	if err != nil {
		f.Fatal(err)
	}
	key, err := pki.NewKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	csr, err := pki.NewRequest(rand.Reader, key)
	if err != nil {
		f.Fatal(err)
	}
	good := joinRequest{TokenID: "t", Secret: "s", CSR: csr, Node: compute.Node{
		ID: compute.NodeID{UUID: compute.UUID{7}}, Name: "n", Role: compute.RoleWorker, RPC: "127.0.0.1:1",
	}}
	f.Add(codec.Marshal(good))
	f.Add(codec.Marshal(joinRequest{}))
	f.Add(codec.Marshal(joinRequest{Node: good.Node, CSR: csr[:len(csr)/2]}))
	f.Add([]byte{0xa1, 0x03, 0xa1, 0x18, 0x20, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		var req joinRequest
		if codec.Unmarshal(data, &req) != nil || CheckNode(&req.Node) != nil {
			return
		}
		id := pki.Identity{Cluster: compute.UUID{1}, Role: req.Node.Role, Node: req.Node.ID}
		cert, err := ca.IssueForRequest(rand.Reader, id, req.CSR, now)
		if err != nil {
			return
		}
		got, err := ca.Verify(cert, now)
		if public, ok := cert.PublicKey.(ed25519.PublicKey); err != nil || got != id || ok && len(public) != ed25519.PublicKeySize {
			t.Errorf("the certificate is for %+v, %v", got, err)
		}
	})
}
