package packages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/compute"
	"berth/node/executor/sandbox"
	"berth/node/executor/scratch"
)

// SiteDir is where an image has the packages.
const SiteDir = "site"

const (
	requirementsFile = "/berth/requirements.txt"
	linksDir         = "/berth/links"
	rootsFile        = "/etc/ssl/certs/ca-certificates.crt"
	target           = sandbox.WorkDir + "/packages"

	maxWords = 400 // Bytes of an installer's words in an error.
)

// Job is one installer to run in a sandbox without a network.
type Job struct {
	Disk  *os.File // The work directory and /tmp: a detached mount of an empty file system.
	Argv  []string
	Env   []string
	Files []sandbox.File
	Binds []sandbox.Bind
	Line  func(string)        // Gets each line of its output.
	Ready func(pid int) error // Called with the first process of the sandbox, before the installer starts.
}

// Run runs a job to its end and returns the exit code. It ends the installer when
// ctx ends.
type Run func(ctx context.Context, job Job) (exitCode int, err error)

// makeImage installs what is asked for into a new image.
func (s *Store) makeImage(ctx context.Context, key string, r Request, line func(string)) error {
	tmp := filepath.Join(s.cfg.Dir, tmpPrefix+key)
	_ = os.Remove(tmp) // An installation that was canceled a moment ago may have left it.
	defer os.Remove(tmp)
	if err := scratch.Format(ctx, tmp, s.cfg.SizeMiB); err != nil {
		return err
	}
	root, err := scratch.Mount(tmp, false)
	if err != nil {
		return err
	}
	err = s.fill(ctx, root, r, line)
	if err == nil {
		err = seal(root)
	}
	if err = errors.Join(err, root.Close()); err != nil {
		return err
	}
	if err := scratch.Released(ctx, tmp); err != nil {
		return fmt.Errorf("seal packages: %w", err)
	}
	return publish(tmp, filepath.Join(s.cfg.Dir, key+suffix))
}

// fill runs the installer.
func (s *Store) fill(ctx context.Context, root *os.File, r Request, line func(string)) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	words, said := "", 0
	job := Job{
		Disk: root, Argv: s.argv(), Env: environment(),
		Files: []sandbox.File{{Path: requirementsFile, Text: r.Requirements, Mode: 0o444}},
		Line: func(text string) {
			if rank := rankOf(text); rank > 0 && rank >= said {
				words, said = strings.TrimSpace(text), rank
			}
			line(text)
		},
		Ready: func(pid int) error {
			listener, err := listenIn(ctx, pid)
			if err != nil {
				return err
			}
			refused := func(host string) { line("the installer may not reach " + host) }
			go newProxy(s.cfg.Index.hosts(), refused).serve(serving, listener)
			return nil
		},
	}
	for i, dir := range s.cfg.Index.directories() {
		job.Binds = append(job.Binds, sandbox.Bind{Source: dir, Target: fmt.Sprint(linksDir, i)})
	}
	code, err := s.cfg.Run(ctx, job)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case code != 0 && words != "":
		return compute.Errorf(compute.CodeInvalid, "the packages were not installed: %s", compute.Clip(words, maxWords))
	case code != 0:
		return compute.Errorf(compute.CodeInvalid,
			"the packages were not installed: the installer ended with exit code %d", code)
	}
	return nil
}

// rankOf returns how well a line of an installer says why it fails, 0 for not at all.
// Among lines of equal rank the last one counts.
func rankOf(line string) int {
	line = strings.TrimSpace(line)
	switch lower := strings.ToLower(line); {
	case strings.Contains(lower, "no space left"):
		return 3
	case strings.HasPrefix(line, "ERROR: "), strings.HasPrefix(line, "× "), strings.HasPrefix(lower, "error: "),
		strings.Contains(lower, "no module named pip"):
		if strings.Contains(lower, "subprocess") || strings.HasPrefix(line, "× ") {
			return 1 // The reason is in a line before it.
		}
		return 2
	}
	return 0
}

// argv returns the command line of the installer: uv where the machine has it, else
// the interpreter's pip.
func (s *Store) argv() []string {
	argv := []string{
		s.cfg.Interpreter.Executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
		"--no-cache-dir", "--progress-bar", "off", "--proxy", "http://" + proxyAddr,
	}
	if uv, err := exec.LookPath("uv"); err == nil && strings.HasPrefix(uv, "/usr/") {
		argv = []string{uv, "pip", "install", "--no-cache", "--no-config", "--python", s.cfg.Interpreter.Executable}
	}
	argv = append(argv, "--target", target, "-r", requirementsFile)
	if index := s.cfg.Index.url(); index != "" {
		argv = append(argv, "--index-url", index)
	} else {
		argv = append(argv, "--no-index")
	}
	dirs := 0
	for _, link := range s.cfg.Index.FindLinks {
		if filepath.IsAbs(link) {
			link = fmt.Sprint(linksDir, dirs)
			dirs++
		}
		argv = append(argv, "--find-links", link)
	}
	return argv
}

// environment returns the variables of an installer.
func environment() []string {
	proxy := "http://" + proxyAddr
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.WorkDir, "LANG=C.UTF-8", "TMPDIR=/tmp", "PYTHONUNBUFFERED=1",
		"HTTP_PROXY=" + proxy, "HTTPS_PROXY=" + proxy, "http_proxy=" + proxy, "https_proxy=" + proxy, "NO_COLOR=1",
		"PIP_CONFIG_FILE=/dev/null",
	}
	if _, err := os.Stat(rootsFile); err == nil {
		// The operator's own authority may have signed the index's certificate.
		env = append(env, "PIP_CERT="+rootsFile, "SSL_CERT_FILE="+rootsFile)
	}
	return env
}

// seal leaves only the packages in the image, readable to everyone.
func seal(root *os.File) error {
	fd := int(root.Fd())
	path := func(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", fd, name) }
	from := filepath.Base(filepath.Dir(target)) + "/" + filepath.Base(target)
	err := unix.Renameat(fd, from, fd, SiteDir)
	if errors.Is(err, unix.ENOENT) {
		err = unix.Mkdirat(fd, SiteDir, 0o755) // Nothing was asked for, or all of it is for other machines.
	}
	if err != nil {
		return fmt.Errorf("seal packages: %w", err)
	}
	entries, err := os.ReadDir(path("."))
	if err != nil {
		return fmt.Errorf("seal packages: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == SiteDir {
			continue
		}
		if err := os.RemoveAll(path(entry.Name())); err != nil {
			return fmt.Errorf("seal packages: %w", err)
		}
	}
	var site unix.Stat_t
	err = unix.Fstatat(fd, SiteDir, &site, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && site.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = errors.New("the installer left no directory")
	}
	if err == nil {
		err = errors.Join(unix.Fchownat(fd, ".", 0, 0, 0), unix.Fchmodat(fd, ".", 0o755, 0))
	}
	if err != nil {
		return fmt.Errorf("seal packages: %w", err)
	}
	return nil
}

// publish makes an image durable under its final name.
func publish(tmp, name string) error {
	for _, step := range []func() error{
		func() error { return syncPath(tmp) },
		func() error { return os.Rename(tmp, name) },
		func() error { return syncPath(filepath.Dir(name)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("keep packages: %w", err)
		}
	}
	return nil
}

// syncPath makes a file or a directory durable.
func syncPath(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
