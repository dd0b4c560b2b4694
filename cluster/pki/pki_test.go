package pki_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/cluster/file"
	"berth/cluster/pki"
	"berth/compute"
)

func mustCA(t testing.TB) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(rand.Reader, compute.UUID{1}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func mustPair(t testing.TB, ca *pki.CA, id pki.Identity, now time.Time) *tls.Certificate {
	t.Helper()
	key, err := pki.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(rand.Reader, id, key.Public(), now)
	if err != nil {
		t.Fatal(err)
	}
	return pki.Pair(cert, key, ca)
}

func node(n byte) pki.Identity {
	return pki.Identity{Cluster: compute.UUID{1}, Role: compute.RoleServer, Node: compute.NodeID{UUID: compute.UUID{n}}}
}

func TestIssuedCertificate(t *testing.T) {
	ca, now := mustCA(t), time.Now()
	worker := node(2)
	worker.Role = compute.RoleWorker
	for _, id := range []pki.Identity{node(2), worker} {
		leaf := mustPair(t, ca, id, now).Leaf
		got, err := ca.Verify(leaf, now)
		if err != nil || got != id {
			t.Errorf("verified as %+v, %v", got, err)
		}
		if uri := leaf.URIs[0].String(); uri != "spiffe://"+id.Cluster.String()+"/"+id.Role.String()+"/"+id.Node.String() {
			t.Errorf("the URI is %s", uri)
		}
		if life := leaf.NotAfter.Sub(now); life > pki.LeafLifetime {
			t.Errorf("it is valid for %s", life)
		}
		for at, valid := range map[time.Duration]bool{
			-25 * time.Hour: false, -time.Hour: true, time.Hour: true, pki.LeafLifetime + time.Second: false,
		} { // Clocks may be hours off.
			_, err := ca.Verify(leaf, now.Add(at))
			if valid != (err == nil) || !valid && !strings.Contains(err.Error(), "set this clock") {
				t.Errorf("%s later: %v", at, err)
			}
		}
		if _, err := mustCA(t).Verify(leaf, now); err == nil {
			t.Error("another authority accepts it")
		}
	}
}

func TestRequestsAreChecked(t *testing.T) {
	ca := mustCA(t)
	key, err := pki.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.NewRequest(rand.Reader, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueForRequest(rand.Reader, node(2), csr, time.Now())
	if err != nil || !key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		t.Errorf("issued for another key: %v", err)
	}
	csr[len(csr)-1] ^= 1
	for _, bad := range [][]byte{nil, []byte("garbage"), csr} {
		if _, err := ca.IssueForRequest(rand.Reader, node(2), bad, time.Now()); compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("a bad request gives %v", err)
		}
	}
	if _, err := (&pki.CA{Cert: ca.Cert}).Issue(rand.Reader, node(2), key.Public(), time.Now()); err == nil {
		t.Error("issued without the authority's key")
	}
}

func TestFiles(t *testing.T) {
	ca, dir := mustCA(t), t.TempDir()
	pair := mustPair(t, ca, node(2), time.Now())
	if err := errors.Join(pki.SaveCA(dir, ca), pki.SavePair(dir, pair)); err != nil {
		t.Fatal(err)
	}
	gotCA, err := pki.LoadCA(dir)
	if err != nil || !gotCA.Cert.Equal(ca.Cert) || !gotCA.Key.Equal(ca.Key) || gotCA.Pin() != ca.Pin() {
		t.Fatalf("loaded another authority: %v", err)
	}
	got, err := pki.LoadPair(dir, ca)
	if err != nil || !got.Leaf.Equal(pair.Leaf) || len(got.Certificate) != 2 {
		t.Fatalf("loaded another certificate: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if len(entries) != 4 {
		t.Errorf("%d files", len(entries))
	}
	// A crash between the two files of a renewal.
	other := t.TempDir()
	if err := errors.Join(pki.SavePair(other, mustPair(t, ca, node(2), time.Now()))); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(other, "node.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Write(filepath.Join(dir, "node.key"), key); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.LoadPair(dir, ca); err == nil {
		t.Error("a key of another certificate was accepted")
	}
	if err := file.Write(filepath.Join(dir, "ca.key"), key); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.LoadCA(dir); err == nil {
		t.Error("a key of another authority was accepted")
	}
}

func TestJoinTokens(t *testing.T) {
	ca := mustCA(t)
	token, err := pki.NewJoinToken(rand.Reader, ca)
	if err != nil {
		t.Fatal(err)
	}
	text := token.String()
	got, err := pki.ParseJoinToken(text + "\n")
	if err != nil || got != token || got.SecretHash() != token.SecretHash() || got.Pin != ca.Pin() {
		t.Errorf("%s came back as %s, %v", text, got, err)
	}
	for _, bad := range []string{
		"", "bjt", strings.Replace(text, "bjt", "lk", 1), text + "0", text[:len(text)-1], strings.ToUpper(text),
		strings.Replace(text, "_", "-", 1), text + "_x", strings.Replace(text, token.Secret, token.Secret[1:]+"-", 1),
	} {
		if _, err := pki.ParseJoinToken(bad); compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("%q gives %v", bad, err)
		} else if bad != "" && strings.Contains(err.Error(), token.Secret) {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
	if _, err := pki.NewJoinToken(bytes.NewReader(nil), ca); err == nil {
		t.Error("a token without randomness")
	}
}

// handshake connects a client to a server and returns the errors of both sides.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err == nil {
			conn := tls.Server(raw, server)
			err = conn.HandshakeContext(t.Context())
			conn.Close()
		}
		served <- err
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		conn.Close()
	}
	return errors.Join(err, <-served)
}

func TestHandshakes(t *testing.T) {
	ca, foreign, now := mustCA(t), mustCA(t), time.Now
	pair := func(ca *pki.CA, id pki.Identity, at time.Time) func() *tls.Certificate {
		p := mustPair(t, ca, id, at)
		return func() *tls.Certificate { return p }
	}
	ours, theirs := pair(ca, node(1), now()), pair(ca, node(2), now())
	stale := pair(ca, node(2), now().Add(-2*pki.LeafLifetime))
	worker := node(3)
	worker.Role = compute.RoleWorker
	wantOne := func(id pki.Identity) error {
		if id != node(1) {
			return errors.New("someone else answered")
		}
		return nil
	}
	server := pki.ServerConfig(ca, ours, now, "raft/1", "rpc/1")
	for _, test := range []struct {
		name   string
		server *tls.Config
		client *tls.Config
		reason string
	}{
		{"both of the cluster", server, pki.ClientConfig(ca, theirs, now, "raft/1", wantOne), ""},
		{"another node answers", pki.ServerConfig(ca, theirs, now, "rpc/1"), pki.ClientConfig(ca, theirs, now, "rpc/1", wantOne), "someone else answered"},
		{"client of another authority", server, pki.ClientConfig(ca, pair(foreign, node(2), now()), now, "rpc/1", wantOne), "unknown authority"},
		{"server of another authority", pki.ServerConfig(foreign, pair(foreign, node(1), now()), now, "rpc/1"), pki.ClientConfig(ca, theirs, now, "rpc/1", wantOne), "unknown authority"},
		{"client has expired", server, pki.ClientConfig(ca, stale, now, "rpc/1", wantOne), "expired"},
		{"unknown protocol", server, pki.ClientConfig(ca, theirs, now, "http/1.1", wantOne), "no application protocol"},
		{"no protocol", server, &tls.Config{InsecureSkipVerify: true}, "no protocol"},
		{"TLS 1.2", server, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, NextProtos: []string{"rpc/1"}}, "version"},
		{"pinned", server, pki.PinnedConfig(ca.Pin(), now, "rpc/1"), ""},
		{"pinned to another", server, pki.PinnedConfig(foreign.Pin(), now, "rpc/1"), pki.ErrPin.Error()},
		{"pinned, a worker answers", pki.ServerConfig(ca, pair(ca, worker, now()), now, "rpc/1"), pki.PinnedConfig(ca.Pin(), now, "rpc/1"), "server was expected"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := handshake(t, test.server, test.client)
			if test.reason == "" && err != nil || test.reason != "" && (err == nil || !strings.Contains(err.Error(), test.reason)) {
				t.Errorf("got %v, want %q", err, test.reason)
			}
		})
	}
}

// TestPinNeedsASignature checks that an authority does not pass the pin if it
// only has the right certificate in its chain, without a signature by it.
func TestPinNeedsASignature(t *testing.T) {
	ca, foreign := mustCA(t), mustCA(t)
	forged := mustPair(t, foreign, node(1), time.Now())
	forged.Certificate[1] = ca.Cert.Raw
	server := pki.ServerConfig(ca, func() *tls.Certificate { return forged }, time.Now, "rpc/1")
	if err := handshake(t, server, pki.PinnedConfig(ca.Pin(), time.Now, "rpc/1")); err == nil {
		t.Error("it passed")
	}
}
