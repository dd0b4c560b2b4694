package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/gateway"
	"berth/node/objects"
)

// replicas stand in for those of deployments and services. Each answer names the execution and
// its organization.
type replicas struct {
	mu sync.Mutex

	reached map[compute.ExecutionID]int
	secret  map[compute.OrgID]string // In the answers of an organization.
}

func (*replicas) Ready(*fsm.View, *compute.Execution) bool { return true }

func (*replicas) Count(compute.ExecutionID, func() time.Time) (answered, done func()) {
	return func() {}, func() {}
}

func (*replicas) Admit(context.Context, *fsm.View, *compute.Execution, compute.OrgID, int64) (func(int64), error) {
	return func(int64) {}, nil
}

func (r *replicas) Infer(
	_ *fsm.View, e *compute.Execution, req *http.Request, _ []byte, _ uint64, _ *int,
) (*http.Response, error) {
	return r.answer(e, req), nil
}

func (r *replicas) RoundTrip(_ *fsm.View, e *compute.Execution, req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, compute.Errorf(compute.CodeInvalid, "The body ended: %w", err).Named("bad_request")
		}
	}
	return r.answer(e, req), nil
}

// answer returns what a replica of an execution answers.
func (r *replicas) answer(e *compute.Execution, req *http.Request) *http.Response {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached[e.ID]++
	body := fmt.Sprintf(`{"choices":[],"answered_by":"%s","secret":"%s"}`, e.ID, r.secret[e.Org])
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader([]byte(body))),
	}
}

// times returns how many requests have reached the replicas of an execution.
func (r *replicas) times(id compute.ExecutionID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reached[id]
}

// lentBlobs are the world's blobs as the gateway uses them.
type lentBlobs struct{ *fakeBlobs }

func (b lentBlobs) Lend(ctx context.Context, data []byte) (compute.Hash, bool, error) {
	hash, err := b.Put(ctx, data)
	return hash, true, err
}

func (b lentBlobs) Get(ctx context.Context, hash compute.Hash) ([]byte, error) {
	data, err := b.fakeBlobs.Get(ctx, hash)
	return bytes.Clone(data), err
}

func (lentBlobs) Peek(compute.Hash, []byte) ([]byte, bool) { return nil, false }

// plainKeys stands in for encryption.
type plainKeys struct{}

func (plainKeys) New(org compute.OrgID) (*compute.Bucket, error) {
	return &compute.Bucket{Org: org, Sealed: []byte(masterPrefix)}, nil
}

func (plainKeys) Open(*compute.Bucket) (objects.Key, error) { return plainKey{}, nil }

type plainKey struct{}

func (plainKey) Seal(data, _ []byte) ([]byte, error)   { return append([]byte{1}, data...), nil }
func (plainKey) Open(sealed, _ []byte) ([]byte, error) { return sealed[1:], nil }

func (k plainKey) SealChunk(dst, data, kind []byte) ([]byte, objects.IV, error) {
	sealed, err := k.Seal(data, kind)
	return append(dst, sealed...), objects.IV{}, err
}

func (k plainKey) OpenChunk(sealed, kind []byte, _ objects.IV) ([]byte, error) {
	return k.Open(sealed, kind)
}

// lateTransport is a transport that is made after the API that has it.
type lateTransport struct{ http.RoundTripper }

// passing has models, services and S3 served in a world: by replicas that only say that they were
// reached, and by the gateway that nodes have.
type passing struct {
	*matrix

	replicas *replicas
	s3       *lateTransport
	worker   *world
}

// newPassing returns a matrix with everything that requests are passed on to, and a worker.
func newPassing(t testing.TB) *passing {
	t.Helper()
	p := &passing{
		replicas: &replicas{reached: map[compute.ExecutionID]int{}, secret: map[compute.OrgID]string{}}, s3: new(lateTransport),
	}
	keys := gateway.Keys{Secret: []byte("the same on every node, of 32 bytes")}
	p.matrix = newMatrix(t, func(c *handler.Config) {
		c.Models, c.Services, c.Config.S3 = p.replicas, p.replicas, p.s3
		c.ModelLimits = edge.ModelLimits{InFlight: 8}
		keys.Now = c.Now
		c.S3 = func(actor command.Actor, session compute.UUID, key compute.Hash, base string, _ bool) (wire.StorageCredentials, error) {
			made := keys.Mint(actor, session, key)
			return wire.StorageCredentials{
				AccessKey: made.Access, SecretKey: made.Secret, SessionToken: made.Token, Endpoint: base + edge.S3Root,
				BucketName: gateway.BucketOf(actor.Org), Region: gateway.Region, ExpiresAt: compute.InstantOf(made.ExpiresAt),
			}, nil
		}
	})
	p.serveGateway(keys)
	_, p.worker = p.newWorker(func(c *handler.Config) { c.MetricsToken, c.Config.S3 = metricsToken, p.s3 })
	p.replicas.secret[p.cyd], p.replicas.secret[p.org("bob-lab")] = canaryOfCyd, canary
	return p
}

// serveGateway starts the S3 gateway.
func (p *passing) serveGateway(keys gateway.Keys) {
	p.Helper()
	var ids uint64
	var mu sync.Mutex
	newID := func() compute.UUID {
		mu.Lock()
		defer mu.Unlock()
		ids++
		return uuid(1<<40 + ids)
	}
	content := objects.New(objects.Config{
		Blobs: lentBlobs{p.blobs}, Keys: plainKeys{}, Propose: p.Propose, Wait: p.machine.Wait, NewID: newID, Now: p.clock,
		Logger: p.cfg.Logger, SealsChunks: func() bool { return false },
	})
	g, err := gateway.New(gateway.Config{
		Keys: keys, Objects: content, View: p.machine.View, Read: p.Read, Propose: p.Propose, Wait: p.machine.Wait,
		NewID: newID, Logger: p.cfg.Logger,
	})
	p.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	transport := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return g.Dial(ctx) },
		DisableCompression: true,
	}
	p.s3.RoundTripper = transport
	p.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		p.ok(<-ended)
	})
}

// s3Request is one request of a client of S3.
type s3Request struct {
	method, path string // Below S3Root, with its query.
	body         string
	header       map[string]string
}

// signed returns the headers of a request that is signed with credentials.
func (w *world) signed(creds wire.StorageCredentials, r s3Request) []string {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), r.method, w.url+edge.S3Root+r.path, bytes.NewReader([]byte(r.body)))
	w.ok(err)
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	sum := sha256.Sum256([]byte(r.body))
	digest := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", digest)
	who := aws.Credentials{AccessKeyID: creds.AccessKey, SecretAccessKey: creds.SecretKey, SessionToken: creds.SessionToken}
	w.ok(v4.NewSigner().SignHTTP(w.Context(), who, req, digest, "s3", gateway.Region, time.Now(),
		func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }))
	var header []string
	for name, values := range req.Header {
		header = append(header, name, values[0])
	}
	return header
}

// askS3 makes a request of S3 through a node's API.
func (p *passing) askS3(node *world, creds wire.StorageCredentials, r s3Request) answer {
	p.Helper()
	return node.fetch(r.method, edge.S3Root+r.path, "", []byte(r.body), p.signed(creds, r))
}

// s3Credentials returns those that the API makes for a bearer.
func (p *passing) s3Credentials(bearer string) (made wire.StorageCredentials) {
	p.Helper()
	p.mustDo("POST", "/storage/credentials", bearer, nil, &made)
	return made
}
