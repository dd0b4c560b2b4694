package packages

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"berth/compute"
)

// DefaultIndex is the public index.
const DefaultIndex = "https://pypi.org/simple"

// publicFiles is where the public index keeps its files.
const publicFiles = "files.pythonhosted.org:443"

// Index is where installers find packages.
type Index struct {
	URL       string   // URL of the index; "" for DefaultIndex.
	FindLinks []string // Directories of this machine, and URLs, with packages beside the index.
	Hosts     []string // Further hosts, as host:port, to which the index links.
	Offline   bool     // Only FindLinks.
}

// url returns the index in use, "" for none.
func (i *Index) url() string {
	if i.Offline {
		return ""
	}
	return cmp.Or(i.URL, DefaultIndex)
}

// hosts returns the hosts that installers reach, each host:port.
func (i *Index) hosts() []string {
	hosts := slices.Clone(i.Hosts)
	for _, text := range append([]string{i.url()}, i.FindLinks...) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			continue
		}
		hosts = append(hosts, hostOf(u))
		if u.Hostname() == "pypi.org" {
			hosts = append(hosts, publicFiles)
		}
	}
	return hosts
}

// directories returns the FindLinks that are directories of this machine.
func (i *Index) directories() (dirs []string) {
	for _, link := range i.FindLinks {
		if filepath.IsAbs(link) {
			dirs = append(dirs, link)
		}
	}
	return dirs
}

// Request has the packages that an execution asks for.
type Request struct {
	Org          compute.OrgID // Organizations share nothing.
	Requirements string
}

// key returns the name of what a request gets with an interpreter and an index.
func (s *Store) key(r Request) string {
	h := sha256.New()
	for _, part := range []string{
		"1", r.Org.String(), s.cfg.Interpreter.Executable, s.cfg.Interpreter.Version, runtime.GOOS + "/" + runtime.GOARCH,
		s.cfg.Index.url(), strings.Join(s.cfg.Index.FindLinks, "\n"), normalized(r.Requirements),
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// normalized returns a text of requirements without what does not matter: comments,
// empty lines, and spaces at the ends of lines. The order stays.
func normalized(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if at := strings.Index(" "+line, " #"); at >= 0 {
			line = line[:at]
		}
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
