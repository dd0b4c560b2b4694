package node_test

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"berth/cluster/pki"
	"berth/cluster/rpc"
	"berth/cluster/transport"
	"berth/compute"
	"berth/node/nodetest"
)

// TestNobodyJoinsWithoutAToken asks to join in the name of members, one of which is
// down, without a token and with tokens that nobody made.
func TestNobodyJoinsWithoutAToken(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	leader, gone := c.Leader(), c.Follower()
	gone.Stop()
	key, err := pki.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.NewRequest(rand.Reader, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range []*nodetest.Node{gone, leader} {
		record, ok := leader.Peer().View().Node(member.ID())
		if !ok {
			t.Fatalf("the leader does not know %s", member.ID())
		}
		for _, token := range []string{"", "0123456789", strings.Repeat("x", 60<<10)} {
			var answer error
			nodetest.Eventually(t, time.Minute, "an answer to who wants to join", func() bool {
				answer = join(t, leader, joinRequest{TokenID: token, Node: *record, CSR: csr})
				e, refused := errors.AsType[*compute.Error](answer)
				return !refused || e.Code != compute.CodeUnavailable && e.Code != compute.CodeRateLimited &&
					(member == leader || e.Detail != "node_up")
			})
			if e, refused := errors.AsType[*compute.Error](answer); !refused || member == gone && e.Detail != "token_unknown" {
				t.Errorf("who joins as %s with the token %.20q is answered %v", member.Config.Name, token, answer)
			}
		}
	}
}

// joinRequest is the request of a machine that joins.
type joinRequest struct {
	TokenID string       `cbor:"1,keyasint"`
	Secret  string       `cbor:"2,keyasint"`
	Node    compute.Node `cbor:"3,keyasint"`
	CSR     []byte       `cbor:"4,keyasint"`
}

// join asks a server to admit a node, as a machine without a certificate.
func join(t *testing.T, server *nodetest.Node, request joinRequest) error {
	t.Helper()
	config := pki.PinnedConfig(server.Peer().Cluster().CA().Pin(), time.Now, transport.ProtoRPC)
	conn, err := transport.DialTLS(t.Context(), new(net.Dialer).DialContext, server.Peer().RPCAddress(), config)
	if err != nil {
		t.Fatal(err)
	}
	codec := rpc.NewCodec()
	client, err := rpc.NewClient(conn, codec, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.Call(t.Context(), "cluster.join", codec.Marshal(request))
	return err
}
