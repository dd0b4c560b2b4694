package supervise

import (
	"fmt"
	"os"
	"sync"
	"time"

	"berth/node/logs"
)

// pumps copy the code's output from its pipes to the log.
type pumps struct {
	files [2]*os.File
	group sync.WaitGroup
}

// newPumps returns pumps and the write ends of their pipes, for the code.
func newPumps() (p *pumps, stdout, stderr *os.File, err error) {
	outRead, stdout, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make output pipe: %w", err)
	}
	errRead, stderr, err := os.Pipe()
	if err != nil {
		outRead.Close()
		stdout.Close()
		return nil, nil, nil, fmt.Errorf("make output pipe: %w", err)
	}
	return &pumps{files: [2]*os.File{outRead, errRead}}, stdout, stderr, nil
}

// start starts copying the output to the log.
func (p *pumps) start(s *supervisor) {
	for i, stream := range []logs.Stream{logs.Stdout, logs.Stderr} {
		p.group.Go(func() { s.pump(p.files[i], stream) })
	}
}

// pump copies one pipe to its end. It goes on when the log fails, because the code
// must not hang on a full disk.
func (s *supervisor) pump(from *os.File, stream logs.Stream) {
	buffer := make([]byte, pumpBytes)
	logged, masked := false, s.secrets.Stream()
	for {
		n, err := from.Read(buffer)
		text := masked.Next(buffer[:n])
		if err != nil {
			text = append(text, masked.Rest()...)
		}
		if len(text) > 0 && s.log != nil {
			e := s.log.Write(stream, s.instant(), text)
			if e != nil && !logged {
				logged = true
				fmt.Fprintln(os.Stderr, e)
			}
			time.Sleep(s.log.Pause()) //nolint:forbidigo // The pipe fills, and the code waits.
		}
		if err != nil {
			return
		}
	}
}

// drain waits until the rest of the output is copied.
func (p *pumps) drain() {
	for _, file := range p.files {
		// A pipe without a deadline still ends when its writers are gone.
		_ = file.SetReadDeadline(time.Now().Add(drainTimeout))
	}
	p.group.Wait()
	for _, file := range p.files {
		file.Close()
	}
}

// note writes a line of the supervisor to the output.
func (s *supervisor) note(text string) {
	if err := s.log.Write(logs.System, s.instant(), []byte(text+"\n")); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
