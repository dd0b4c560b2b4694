package docker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"berth/compute/address"
)

const (
	connectTimeout = 15 * time.Second
	answerTimeout  = time.Minute // From a request to the first byte of its answer.
	maxRedirects   = 10
	certificates   = "/etc/docker/certs.d" // Where engines look for the authorities of registries.
)

// guard decides to which addresses the node connects in order to pull images. A user
// names the registry, and the registry names others: neither must make the node talk to
// what the user could not reach. An address is checked when it is connected to, so that
// neither a name whose address changes nor a redirect leads around the guard.
type guard struct {
	deny     []netip.Prefix
	allow    []string // Hosts with any address, as the operator lists them.
	resolver *net.Resolver
}

func newGuard(cfg *Config) *guard {
	return &guard{deny: address.Special(), allow: cfg.Registries, resolver: cfg.Resolver}
}

// specialError means that a connection would lead to an address that is not public.
type specialError struct {
	host string
	addr netip.Addr
}

func (e *specialError) Error() string {
	return fmt.Sprintf(
		"%s is not a public address, and the operator does not allow %s (docker.registries)", e.addr, e.host)
}

// dial connects to a host and port.
func (g *guard) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: connectTimeout, Resolver: g.resolver}
	if !g.listed(hostPort) {
		dialer.Control = func(_, to string, _ syscall.RawConn) error { return g.check(hostPort, to) }
	}
	return dialer.DialContext(ctx, network, hostPort)
}

// listed reports whether the operator allows a host with any address. An entry without a
// port stands for the ports of HTTP.
func (g *guard) listed(hostPort string) bool {
	host, port, err := net.SplitHostPort(hostPort)
	return err == nil && (slices.Contains(g.allow, hostPort) ||
		(port == "443" || port == "80") && slices.Contains(g.allow, host))
}

// check returns an error if an address must not be connected to.
func (g *guard) check(host, to string) error {
	parsed, err := netip.ParseAddrPort(to)
	if err != nil {
		return fmt.Errorf("%q is not an address: %w", to, err)
	}
	addr := parsed.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(g.deny, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return &specialError{host: host, addr: addr}
	}
	return nil
}

// transport returns the transport for requests to a registry and to its redirects. It
// does not check certificates of a registry that the engine's operator calls insecure.
func (g *guard) transport(registry string, insecure bool) (*http.Transport, error) {
	roots, err := authorities(filepath.Join(certificates, registry))
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		DialContext:         g.dial,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, InsecureSkipVerify: insecure},
		TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: answerTimeout,
		ForceAttemptHTTP2: true, DisableCompression: true, IdleConnTimeout: time.Minute,
	}, nil
}

// authorities returns the machine's certificate authorities and those of a directory, nil
// if it has none.
func authorities(dir string) (*x509.CertPool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.crt"))
	if err != nil || len(files) == 0 {
		return nil, nil //nolint:nilerr,nilnil // A name that is no pattern has no files; nil is the machine's own.
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read certificate authorities: %w", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read certificate authorities: %w", err)
		}
		pool.AppendCertsFromPEM(data)
	}
	return pool, nil
}

// noDowngrade limits redirects. One from HTTPS to HTTP would show what is pulled.
func noDowngrade(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return errors.New("too many redirects")
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return errors.New("a redirect leads from HTTPS to HTTP")
	}
	return nil
}
