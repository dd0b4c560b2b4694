package outputs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"berth/compute"
	"berth/node/executor/sandbox"
)

// Dir is the directory in the work directory whose files are kept.
const Dir = "outputs"

// Limits bound one collection.
type Limits struct {
	Files   int
	Bytes   int64
	Visited int // Names, of whatever kind.
	Depth   int // Directories in each other.
	Time    time.Duration
}

// DefaultLimits returns the limits of every execution.
func DefaultLimits() Limits {
	return Limits{
		Files: compute.MaxOutputs, Bytes: compute.MaxOutputBytes, Visited: 4 * compute.MaxOutputs,
		Depth: compute.MaxPathDepth - 1, Time: 5 * time.Minute,
	}
}

// Summary is the result of a collection.
type Summary struct {
	Files    int      `json:"files"`
	Bytes    int64    `json:"bytes"`
	Left     int      `json:"left"`     // Files that were left out, as far as they were seen.
	Named    []string `json:"named"`    // The first of them, each with its reason.
	Complete bool     `json:"complete"` // The collection came to its end.
}

// maxNamed is how many left out files a summary names.
const maxNamed = 8

const (
	namesAtOnce = 512
	copyBuffer  = 256 << 10
	readable    = syscall.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY
)

// errLimit ends a collection.
var errLimit = errors.New("limit reached")

// collector copies files to a work stream.
type collector struct {
	Summary

	limits  Limits
	until   time.Time
	visited int
	to      *os.File
	out     *sandbox.WorkWriter
	buffer  []byte
}

// Collect writes the regular files beneath Dir in the directory work to the file
// at name, as a work stream. It makes no file when there is no Dir. An error
// means that nothing is known of the outputs.
func Collect(work *os.File, name string, limits Limits) (Summary, error) {
	dir, err := openAt(work, Dir, readable|syscall.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return Summary{Complete: true}, nil
	}
	c := &collector{limits: limits, buffer: make([]byte, copyBuffer)}
	c.until = time.Now().Add(limits.Time) //nolint:forbidigo // A stopwatch: this is another process than the node.
	if err != nil {
		c.leave(Dir, "is not a directory")
		c.Complete = true
		return c.Summary, nil // The code made something else of it.
	}
	defer dir.Close()
	if c.to, err = os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600); err != nil {
		return Summary{}, fmt.Errorf("collect outputs: %w", err)
	}
	defer c.to.Close()
	c.out = sandbox.NewWorkWriter(c.to)
	switch err := c.directory(dir, "", 0); {
	case errors.Is(err, errLimit):
	case err != nil:
		return c.Summary, fmt.Errorf("collect outputs: %w", err)
	}
	if err := c.to.Sync(); err != nil {
		return c.Summary, fmt.Errorf("collect outputs: %w", err)
	}
	c.Complete = true
	return c.Summary, nil
}

// leave records that something is left out.
func (c *collector) leave(name, why string) {
	if c.Left++; len(c.Named) < maxNamed {
		c.Named = append(c.Named, fmt.Sprintf("%q %s", compute.Clip(name, compute.MaxPath), why))
	}
}

// directory copies the files of a directory, whose path is "" for Dir itself.
func (c *collector) directory(dir *os.File, at string, depth int) error {
	for {
		names, err := dir.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := c.visit(dir, at+name, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			c.leave(at, "cannot be read: "+err.Error())
			return nil //nolint:nilerr // It is left out.
		}
	}
}

// visit copies one file, or what is in a directory.
func (c *collector) visit(dir *os.File, at, name string, depth int) error {
	c.visited++
	switch {
	case c.Files >= c.limits.Files:
		c.leave(at, fmt.Sprintf("and what follows: over %d files", c.limits.Files))
		return errLimit
	case c.visited > c.limits.Visited:
		c.leave(at, fmt.Sprintf("and what follows: over %d names", c.limits.Visited))
		return errLimit
	case time.Until(c.until) < 0:
		c.leave(at, fmt.Sprintf("and what follows: the collection took over %s", c.limits.Time))
		return errLimit
	}
	if why := compute.BadPath(at); why != "" {
		c.leave(at, "is skipped: "+why)
		return nil
	}
	kind, err := kindAt(dir, name)
	if err != nil {
		c.leave(at, "cannot be read: "+reason(err))
		return nil
	}
	switch kind {
	case syscall.S_IFREG:
		return c.file(dir, at, name)
	case syscall.S_IFDIR:
		return c.subdirectory(dir, at, name, depth)
	case syscall.S_IFLNK:
		c.leave(at, "is a link: links are not kept")
	default:
		c.leave(at, "is a device, socket or pipe")
	}
	return nil
}

func (c *collector) subdirectory(dir *os.File, at, name string, depth int) error {
	if depth+1 >= c.limits.Depth {
		c.leave(at, fmt.Sprintf("is deeper than %d directories", c.limits.Depth))
		return nil
	}
	sub, err := openAt(dir, name, readable|syscall.O_DIRECTORY)
	if err != nil {
		c.leave(at, "cannot be read: "+reason(err))
		return nil
	}
	defer sub.Close()
	return c.directory(sub, at+"/", depth+1)
}

// reason returns an error without the path, which comes before it.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// file copies one file.
func (c *collector) file(dir *os.File, at, name string) error {
	file, err := openAt(dir, name, readable)
	if err != nil {
		c.leave(at, "cannot be read: "+reason(err))
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		c.leave(at, "cannot be read: "+reason(err))
		return nil
	case !info.Mode().IsRegular():
		c.leave(at, "is a device, socket or pipe")
		return nil
	case info.Size() > c.limits.Bytes-c.Bytes:
		c.leave(at, fmt.Sprintf("of %d bytes is over the limit of %d bytes for all files", info.Size(), c.limits.Bytes))
		return nil
	}
	before, err := c.to.Seek(0, io.SeekCurrent)
	if err == nil {
		err = c.copy(file, sandbox.WorkEntry{
			Kind: sandbox.WorkRegular, Mode: info.Mode().Perm(), Path: at, Size: info.Size(),
		})
	}
	if err == nil {
		c.Files, c.Bytes = c.Files+1, c.Bytes+info.Size()
		return nil
	}
	c.leave(at, "and what follows cannot be copied: "+reason(err))
	// Files that were copied already stay.
	c.out.Reset(c.to)
	if err := c.to.Truncate(before); err != nil {
		return err
	}
	if _, err := c.to.Seek(before, io.SeekStart); err != nil {
		return err
	}
	return errLimit
}

// copy writes one entry. The stream behind it is in the file afterwards.
func (c *collector) copy(file *os.File, e sandbox.WorkEntry) error {
	if err := c.out.Entry(e); err != nil {
		return err
	}
	// Nothing of the code lives, so the file has the size that it had.
	n, err := io.CopyBuffer(struct{ io.Writer }{c.out}, io.LimitReader(file, e.Size), c.buffer)
	if err == nil && n < e.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = c.out.Flush()
	}
	return err
}

// Write writes the summary to the file at name.
func (s *Summary) Write(name string) error {
	data, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(name, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write summary of outputs: %w", err)
	}
	return nil
}

// ReadSummary returns the summary at name. Without one the collection did not
// come to its end.
func ReadSummary(name string) Summary {
	var s Summary
	data, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return Summary{}
	}
	return s
}

// Warning names the files that are left out, "" for none.
func (s *Summary) Warning() string {
	var parts []string
	if s.Left > 0 {
		more := ""
		if s.Left > len(s.Named) {
			more = fmt.Sprintf(" and %d more", s.Left-len(s.Named))
		}
		parts = append(parts, "not in the outputs: "+strings.Join(s.Named, "; ")+more)
	}
	if !s.Complete {
		parts = append(parts, "the collection of the outputs was cut short, so some may be missing")
	}
	return strings.Join(parts, "; ")
}
