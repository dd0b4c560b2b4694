package berth

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// apiRoot is the path in front of every call that is not given in full.
const apiRoot = "/api/v2/external"

// The limits of one client.
const (
	maxAddrs        = 64
	maxAnswerBytes  = 64 << 20
	dialTimeout     = 2 * time.Second
	answerTimeout   = 30 * time.Second // For one try, without the wait asked for.
	defaultRetryFor = 30 * time.Second
	firstDelay      = 50 * time.Millisecond
	maxDelay        = 2 * time.Second
	idlePerAddr     = 64 // Kept connections.
)

// Config has the settings of a Client.
type Config struct {
	// Addrs are the URLs of nodes of one cluster, such as
	// "http://127.0.0.1:6470". At least one.
	Addrs []string

	// Token is the API key, access token or root token sent as bearer. Empty
	// for calls that need none.
	Token string

	// Org is the slug for the header X-Org-Slug; empty for none.
	Org string

	// RetryFor is how long a call is repeated while no address can serve it.
	// Zero means 30 s; negative means that each address is tried once.
	RetryFor time.Duration

	// FirstContact is how long a call is repeated while no address has ever
	// answered. Its error is an UnreachableError. Zero means RetryFor.
	FirstContact time.Duration

	// Renew returns the token to use in place of one that was refused. A call
	// whose token is refused is repeated once with it. Nil for none.
	Renew func(ctx context.Context, refused string) (string, error)

	// RootCAs are the authorities that certificates are checked against. Nil
	// means those of the system.
	RootCAs *x509.CertPool

	// Proxy returns the proxy for a request, as http.ProxyFromEnvironment does.
	// Nil means none.
	Proxy func(*http.Request) (*url.URL, error)

	// HTTP does the exchanges. Nil means a client of our own, with
	// RootCAs and Proxy.
	HTTP *http.Client

	// Rand is where idempotency keys come from. Nil means crypto/rand.
	Rand io.Reader

	// Now is the clock that RetryFor is measured with. Nil means time.Now.
	Now func() time.Time
}

// Client calls the API of one cluster. All methods may be called by any number of
// goroutines.
type Client struct {
	Groups

	cfg     Config
	addrs   []string
	current *atomic.Uint32 // Index of the address that served last; shared by copies.
	contact *contact       // Shared by copies.
	token   *token
}

// New returns a Client for cfg. It makes no connection.
func New(cfg Config) (*Client, error) {
	if len(cfg.Addrs) == 0 || len(cfg.Addrs) > maxAddrs {
		return nil, fmt.Errorf("new client: %d addresses, want 1 to %d", len(cfg.Addrs), maxAddrs)
	}
	addrs := make([]string, len(cfg.Addrs))
	for i, addr := range cfg.Addrs {
		u, err := url.Parse(addr)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, fmt.Errorf("new client: %q is not an http or https URL", addr)
		}
		addrs[i] = strings.TrimRight(addr, "/")
	}
	if strings.ContainsAny(cfg.Token, "\r\n") {
		return nil, errors.New("new client: the token holds a line break")
	}
	if cfg.RetryFor == 0 {
		cfg.RetryFor = defaultRetryFor
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	met := &contact{limit: cfg.FirstContact, now: cfg.Now}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Transport: newTransport(&cfg, met), CheckRedirect: refuseRedirect}
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	c := &Client{cfg: cfg, addrs: addrs, current: new(atomic.Uint32), contact: met, token: newToken(cfg.Token)}
	c.Groups = groupsOf(c)
	return c, nil
}

// WithToken returns a Client that sends token as bearer and shares everything
// else with c.
func (c *Client) WithToken(token string) *Client {
	other := *c
	other.cfg.Renew, other.token = nil, newToken(token)
	other.Groups = groupsOf(&other)
	return &other
}

// Addrs returns the URLs that c knows.
func (c *Client) Addrs() []string { return append([]string(nil), c.addrs...) }

// readBytes is how much is read of a connection at once: output comes in events of this
// size.
const readBytes = 32 << 10

// newTransport returns a transport for nodes, which notices quickly that a node is
// gone.
func newTransport(cfg *Config, met *contact) *http.Transport {
	var secure *tls.Config
	if cfg.RootCAs != nil {
		secure = &tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12}
	}
	return &http.Transport{
		Proxy: cfg.Proxy, TLSClientConfig: secure,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialer := net.Dialer{Timeout: met.dialTimeout(), KeepAlive: 15 * time.Second}
			return dialer.DialContext(ctx, network, addr)
		},
		MaxIdleConnsPerHost: idlePerAddr,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: 2 * dialTimeout,
		ReadBufferSize:      readBytes,
	}
}

// refuseRedirect keeps the bearer token where it was sent: the API never
// redirects.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
