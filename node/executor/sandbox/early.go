package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// orderHeader is in front of what an early program is to do: the length of its arguments
// and variables, and that of its files, which follow.
const orderHeader = 4 + 8

// deliver sends the arguments, the variables and the files of an early program to the first process.
func deliver(to io.Writer, spec *Spec, work *os.File) error {
	info, err := work.Stat()
	if err != nil {
		return err
	}
	words := earlyWords(spec)
	head := binary.BigEndian.AppendUint32(make([]byte, 0, orderHeader+len(words)), uint32(len(words)))
	head = binary.BigEndian.AppendUint64(head, uint64(info.Size()))
	if _, err := to.Write(append(head, words...)); err != nil {
		return err
	}
	_, err = io.CopyN(to, work, info.Size())
	return err
}

// earlyWords returns the arguments and variables as the program reads them.
func earlyWords(spec *Spec) string {
	words := append([]string{strconv.Itoa(len(spec.Argv))}, spec.Argv...)
	return strings.Join(append(words, spec.Env...), "\x00")
}

// earlyProgram is an early program that waits.
type earlyProgram struct {
	pid   int
	input *os.File // The program reads what is written to it.
}

// startEarly starts the early program of the spec. The thread that starts it is restricted for good,
// so it is another one than the caller's, and ends.
func startEarly(spec *Spec) (*earlyProgram, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer read.Close()
	p := &earlyProgram{input: write}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		p.pid, err = execute(spec, spec.Early.Argv, spec.Early.Env, read)
		done <- err
	}()
	if err := <-done; err != nil {
		write.Close()
		return nil, err
	}
	return p, nil
}

// begin unpacks the files that the supervisor sends, and passes the arguments and variables on.
func (p *earlyProgram) begin(from io.Reader) error {
	defer p.input.Close()
	var header [orderHeader]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	words := make([]byte, binary.BigEndian.Uint32(header[:]))
	if _, err := io.ReadFull(from, words); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	files := &io.LimitedReader{R: from, N: int64(binary.BigEndian.Uint64(header[4:]))}
	if err := unpackWork(files, WorkDir); err != nil {
		return refusal(err)
	}
	if files.N > 0 {
		return fmt.Errorf("unpack files: %w", io.ErrUnexpectedEOF)
	}
	// A program that has ended reads nothing. Its status says how it ended.
	if _, err := p.input.Write(words); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("pass arguments: %w", err)
	}
	return nil
}
