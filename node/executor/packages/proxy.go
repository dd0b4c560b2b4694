package packages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dialTimeout    = 15 * time.Second
	headersTimeout = 30 * time.Second
	headerBytes    = 64 << 10

	proxyAddr = "127.0.0.1:3128" // In the network namespace of an installer, which nobody else is in.
)

// proxy lets an installer reach the hosts of the index.
type proxy struct {
	allowed map[string]bool // host:port.
	refused func(host string)
	dialer  net.Dialer
	forward *httputil.ReverseProxy
}

// newProxy returns a proxy to the hosts, each host:port.
func newProxy(hosts []string, refused func(host string)) *proxy {
	p := &proxy{allowed: make(map[string]bool), refused: refused, dialer: net.Dialer{Timeout: dialTimeout}}
	for _, host := range hosts {
		p.allowed[host] = true
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite:  func(*httputil.ProxyRequest) {},                        // The target is the absolute URL of the request.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), // The installer says it.
		Transport: &http.Transport{
			DialContext: p.dialer.DialContext, ResponseHeaderTimeout: headersTimeout, DisableCompression: true,
		},
	}
	return p
}

// serve answers on the listener until ctx ends.
func (p *proxy) serve(ctx context.Context, listener net.Listener) {
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: headersTimeout, MaxHeaderBytes: headerBytes, ErrorLog: p.forward.ErrorLog,
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	_ = server.Serve(listener) // It ends with ctx.
}

// ServeHTTP forwards a request to a host of the index, or opens a tunnel to it.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if r.Method != http.MethodConnect {
		host = hostOf(r.URL)
	}
	if !p.allowed[host] {
		p.refused(host)
		http.Error(w, "the operator lets installers reach the configured index only, not "+host, http.StatusForbidden)
		return
	}
	if r.Method != http.MethodConnect {
		p.forward.ServeHTTP(w, r)
		return
	}
	if err := p.tunnel(w, r, host); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// tunnel connects the client to the host.
func (p *proxy) tunnel(w http.ResponseWriter, r *http.Request, host string) error {
	server, err := p.dialer.DialContext(r.Context(), "tcp", host)
	if err != nil {
		return err
	}
	defer server.Close()
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return errors.New("the connection cannot be taken over")
	}
	client, buffered, err := hijacker.Hijack()
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return nil // The client is gone.
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, buffered)
		_ = server.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(client, server)
	client.Close()
	both.Wait()
	return nil
}

// hostOf returns host:port of a URL.
func hostOf(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// listenIn listens on the loopback of the network namespace of a process.
func listenIn(ctx context.Context, pid int) (listener net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		// The thread is not unlocked: it ends with the goroutine, in the wrong namespace.
		var namespace *os.File
		if namespace, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
			return
		}
		defer namespace.Close()
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", proxyAddr)
	}()
	<-done
	if err != nil {
		return nil, fmt.Errorf("listen for the installer: %w", err)
	}
	return listener, nil
}
