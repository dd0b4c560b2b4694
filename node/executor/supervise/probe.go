package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
	"time"

	"berth/boottime"
)

// Times of the readiness probe.
const (
	ProbeEvery   = 2 * time.Second        // Between probes,
	probeFirst   = 100 * time.Millisecond // which are more frequent at first.
	probeTimeout = 2 * time.Second        // For the answer to one.
	probeFails   = 3                      // Failures in a row after which code that was ready is not.
	probeHead    = 64                     // Bytes of an answer that are read.
)

// Serving describes the port that the code serves, and how it is known to be
// ready.
type Serving struct {
	Port             int           `json:"port"`
	HealthPath       string        `json:"health_path,omitempty"`
	ReadinessTimeout time.Duration `json:"readiness_timeout_ns"`
	ProbeEvery       time.Duration `json:"probe_every_ns"`
}

// serveCode opens the way to the port of the code and starts to probe it.
func (s *supervisor) serveCode() error {
	serving := s.spec.Serving
	if serving == nil {
		return nil
	}
	if err := s.readiness.set(boottime.Now() + serving.ReadinessTimeout); err != nil {
		return err
	}
	g, err := openGate(s.box.Process(), serving.Port)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // The code has ended. If it has not, the readiness timeout ends it.
	}
	if err != nil {
		return err
	}
	if err := s.serveGate(g); err != nil {
		return err
	}
	go s.probe(g)
	return nil
}

// probe probes the code until the process exits, and reports when it becomes ready
// or is no longer.
func (s *supervisor) probe(g *gate) {
	serving, ready, fails, pause := s.spec.Serving, false, 0, probeFirst
	for {
		err := g.check(serving.HealthPath)
		switch {
		case err == nil:
			fails = 0
			if !ready {
				ready, pause = true, serving.ProbeEvery
				s.setReady(true, "")
			}
		case !ready:
			pause = min(2*pause, serving.ProbeEvery)
			s.setReady(false, err.Error())
		default:
			if fails++; fails == probeFails {
				ready, fails = false, 0
				s.setReady(false, err.Error())
				s.note("not ready: " + err.Error())
			}
		}
		time.Sleep(pause) //nolint:forbidigo // The process exits meanwhile.
	}
}

// setReady records whether the code is ready, and why not, and reports changes.
func (s *supervisor) setReady(ready bool, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notReady = why
	if s.ready == ready {
		return
	}
	s.ready, s.wasReady = ready, true
	for file := range s.conns {
		_ = writeLine(file, readyLine(ready)) // A later node hears it when it connects.
	}
}

func readyLine(ready bool) string {
	if ready {
		return "ready 1"
	}
	return "ready 0"
}

// unready returns why the code was never ready, "" if it was.
func (s *supervisor) unready() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wasReady {
		return ""
	}
	return fmt.Sprintf("port %d was not ready within %s: %s",
		s.spec.Serving.Port, seconds(s.spec.Serving.ReadinessTimeout), s.notReady)
}

// check probes the code once: by an HTTP request, or by a connection alone.
func (g *gate) check(path string) error {
	fd, err := g.dial()
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if path == "" {
		return nil
	}
	limit := syscall.NsecToTimeval(int64(probeTimeout))
	for _, option := range []int{syscall.SO_RCVTIMEO, syscall.SO_SNDTIMEO} {
		if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, option, &limit); err != nil {
			return err
		}
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: localhost:" + strconv.Itoa(g.port) +
		"\r\nUser-Agent: berth-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n"
	if err := syscall.Sendto(fd, []byte(request), msgNoSignal, nil); err != nil {
		return fmt.Errorf("send probe: %w", err)
	}
	head := make([]byte, 0, probeHead)
	until := boottime.Now() + probeTimeout
	for len(head) < cap(head) && !bytes.ContainsRune(head, '\n') {
		n, err := syscall.Read(fd, head[len(head):cap(head)])
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN || boottime.Now() > until:
			return fmt.Errorf("GET %s was not answered within %s", path, seconds(probeTimeout))
		case err != nil:
			return fmt.Errorf("read answer: %w", err)
		case n <= 0:
			return statusError(path, head)
		}
		head = head[:len(head)+max(n, 0)]
	}
	return statusError(path, head)
}

// statusError returns why an answer does not mean that the code is ready.
func statusError(path string, head []byte) error {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	parts := bytes.Fields(line)
	if len(parts) < 2 || !bytes.HasPrefix(parts[0], []byte("HTTP/")) {
		return fmt.Errorf("GET %s was not answered by HTTP", path)
	}
	code, err := strconv.Atoi(string(parts[1]))
	if err != nil || code < 200 || code > 399 {
		return fmt.Errorf("GET %s answers %s", path, parts[1])
	}
	return nil
}
