package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"berth/composefile"
	"berth/compute"
)

const (
	relayDir = composefile.RelayPath // Begins the names under which the engine pulls from relays.
	relayTag = "image"               // Stands for the tag at the registry.
)

// errTooLarge means that a registry sends more than an image may have.
var errTooLarge = errors.New("the registry sends more than an image may have")

// relay is a registry on this machine from which the engine pulls one image. It fetches
// from the real registry: so the guard sees each connection, and the engine neither
// resolves a name that a user chose nor sees credentials.
type relay struct {
	upstream string // URL of the repository at its registry.
	version  string // The tag or the digest there.
	client   *http.Client
	base     *http.Transport
	left     atomic.Int64 // Bytes that may still be sent.

	listener net.Listener
	server   *http.Server
	path     string // Secret: others on this machine must not pull with the user's credentials.

	mu sync.Mutex

	err error // The first failure at the registry.
}

// openRelay signs in to the registry of an image and begins to serve it. The caller closes
// the relay.
func (e *Engine) openRelay(
	ctx context.Context, named reference.Named, credentials *compute.RegistryCredentials,
) (*relay, error) {
	r, facts := &relay{version: versionOf(named)}, e.Facts()
	r.left.Store(e.cfg.ImageMiB * mib)
	if err := r.signIn(ctx, e.guard, named, facts.insecure(reference.Domain(named)), credentials); err != nil {
		return nil, err
	}
	var listener net.ListenConfig
	var err error
	if r.listener, err = listener.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		r.base.CloseIdleConnections()
		return nil, fmt.Errorf("pull image: %w", err)
	}
	r.path = relayDir + "/" + e.cfg.nodeName() + "/" + strings.ToLower(rand.Text())
	r.server = &http.Server{
		Handler: r, ReadHeaderTimeout: connectTimeout, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	go func() { _ = r.server.Serve(r.listener) }() // It ends with Close.
	return r, nil
}

// versionOf returns the tag or the digest of a reference.
func versionOf(named reference.Named) string {
	if digested, ok := named.(reference.Digested); ok {
		return digested.Digest().String()
	}
	if tagged, ok := named.(reference.Tagged); ok {
		return tagged.Tag()
	}
	return "latest"
}

// signIn prepares the requests to the registry.
func (r *relay) signIn(
	ctx context.Context, g *guard, named reference.Named, insecure bool, credentials *compute.RegistryCredentials,
) (err error) {
	if r.base, err = g.transport(reference.Domain(named), insecure); err != nil {
		return err
	}
	options := []name.Option{}
	if insecure {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(reference.Domain(named), options...)
	if err != nil {
		return errNoImage("%q is not a registry: %s", reference.Domain(named), err.Error())
	}
	auth := authn.Anonymous
	if credentials != nil {
		auth = authn.FromConfig(authn.AuthConfig{Username: credentials.Username, Password: credentials.Password})
	}
	repository := registry.Repo(reference.Path(named))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	signed, err := transport.NewWithContext(ctx, registry, auth, r.base, []string{repository.Scope(transport.PullScope)})
	if err != nil {
		r.base.CloseIdleConnections()
		return fmt.Errorf("sign in to %s: %w", reference.Domain(named), err)
	}
	r.client = &http.Client{Transport: signed, CheckRedirect: noDowngrade}
	// The transport has found out whether the registry speaks HTTPS.
	r.upstream = "https://" + registry.RegistryStr() + "/v2/" + reference.Path(named)
	return nil
}

// ref returns the name under which the engine pulls the image. With a digest the engine
// itself checks what it gets.
func (r *relay) ref() string {
	base := r.listener.Addr().String() + "/" + r.path
	if strings.Contains(r.version, ":") {
		return base + "@" + r.version
	}
	return base + ":" + relayTag
}

// close stops serving.
func (r *relay) close() {
	_ = r.server.Close() // The engine has what it wanted, or is to stop.
	r.base.CloseIdleConnections()
}

// failure returns the first failure at the registry, nil if there was none.
func (r *relay) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *relay) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// ServeHTTP answers a request of the engine.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/v2/" {
		return // The engine asks whether this is a registry.
	}
	rest, ours := strings.CutPrefix(req.URL.Path, "/v2/"+r.path+"/")
	kind, version, found := strings.Cut(rest, "/")
	if !ours || !found || kind != "manifests" && kind != "blobs" || strings.Contains(version, "/") ||
		req.Method != http.MethodGet && req.Method != http.MethodHead {
		http.NotFound(w, req)
		return
	}
	if version == relayTag {
		version = r.version
	}
	answer, err := r.ask(req, r.upstream+"/"+kind+"/"+version)
	if err != nil {
		r.fail(err)
		http.Error(w, "the registry cannot be reached", http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		r.fail(transport.CheckError(answer))
		http.Error(w, "the registry refuses", answer.StatusCode)
		return
	}
	for _, header := range []string{
		"Accept-Ranges", "Content-Length", "Content-Range", "Content-Type", "Docker-Content-Digest", "Etag",
	} {
		if value := answer.Header.Get(header); value != "" {
			w.Header().Set(header, value)
		}
	}
	w.WriteHeader(answer.StatusCode)
	r.pass(w, answer.Body)
}

// ask sends a request of the engine to the registry.
func (r *relay) ask(req *http.Request, url string) (*http.Response, error) {
	out, err := http.NewRequestWithContext(req.Context(), req.Method, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask registry: %w", err)
	}
	for _, header := range []string{"Accept", "Range"} {
		out.Header[header] = req.Header.Values(header)
	}
	return r.client.Do(out)
}

// pass copies what the registry sends, as long as an image may still have it.
func (r *relay) pass(w io.Writer, body io.Reader) {
	buf := make([]byte, relayBuffer)
	for {
		n, err := body.Read(buf)
		if n > 0 && r.left.Add(-int64(n)) < 0 {
			r.fail(errTooLarge)
			panic(http.ErrAbortHandler) // The engine must not take it for the whole.
		}
		if _, bad := w.Write(buf[:n]); bad != nil {
			return // The engine hung up.
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // The engine asks for the rest.
		}
	}
}

const relayBuffer = 64 << 10

// insecure reports whether the engine's operator calls a registry insecure.
func (f *Facts) insecure(domain string) bool {
	if slices.Contains(f.plain, domain) {
		return true
	}
	host := domain
	if h, _, err := net.SplitHostPort(domain); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && slices.ContainsFunc(f.plainNets, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// refusedStatus reports whether a status of a registry says that the image does not exist or
// that these credentials do not get it.
func refusedStatus(err error) bool {
	answer, ok := errors.AsType[*transport.Error](err)
	return ok && slices.Contains([]int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
	}, answer.StatusCode)
}

// said returns the answer of a registry, without the request.
func said(err error) string {
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		if len(answer.Errors) > 0 {
			return answer.Errors[0].String()
		}
		status := strconv.Itoa(answer.StatusCode) + " " + http.StatusText(answer.StatusCode)
		if answer.StatusCode == http.StatusNotFound {
			return "the registry has no such image (" + status + ")"
		}
		return "the registry answers " + status
	}
	if special, ok := errors.AsType[*specialError](err); ok {
		return special.Error()
	}
	return strings.TrimSpace(err.Error())
}
