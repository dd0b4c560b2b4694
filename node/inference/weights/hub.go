package weights

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Git's own hash of small files: there is no other.
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"berth/compute"
)

// Limits of answers of a hub.
const (
	maxListing = 16 << 20
	maxFiles   = 2000
)

var repository = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?$`)

// ValidName reports whether a name is one of a model: owner/name, with @revision and
// :part.
func ValidName(name string) bool {
	w := Want{Name: name}
	model, revision, part := w.split()
	okay := regexp.MustCompile(`^[A-Za-z0-9._-]{0,128}$`)
	return repository.MatchString(model) && !strings.Contains(model, "..") && okay.MatchString(revision) &&
		okay.MatchString(part) && revision != "." && revision != ".."
}

// Hub is a hub of models, or a mirror with its protocol.
type Hub struct {
	URL    string // Without a slash at its end.
	Client *http.Client
}

// hubModel is a hub's description of a model.
type hubModel struct {
	SHA      string `json:"sha"`
	Private  bool   `json:"private"`
	Gated    any    `json:"gated"` // false, or how.
	Siblings []struct {
		Name string `json:"rfilename"`
		Size *int64 `json:"size"`
		Blob string `json:"blobId"`
		LFS  *struct {
			SHA256 string `json:"sha256"`
			Size   int64  `json:"size"`
		} `json:"lfs"`
	} `json:"siblings"`
}

// List returns the files of a model.
func (h *Hub) List(ctx context.Context, w Want) (Listing, error) {
	name, revision, _ := w.split()
	answer, err := h.get(ctx, w.Token, "/api/models/"+name+"/revision/"+cmp.Or(revision, "main")+"?blobs=true", 0)
	if err != nil {
		return Listing{}, err
	}
	defer answer.Body.Close()
	var m hubModel
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxListing)).Decode(&m); err != nil {
		return Listing{}, fmt.Errorf("read listing of the hub: %w", err)
	}
	if m.SHA == "" || len(m.Siblings) > maxFiles || !safeName(m.SHA) || strings.Contains(m.SHA, "/") {
		return Listing{}, compute.Errorf(compute.CodeUnavailable, "the hub's listing of the model is malformed")
	}
	gated, _ := m.Gated.(bool)
	l := Listing{Version: m.SHA, Private: m.Private || gated || m.Gated != nil && m.Gated != false}
	for _, s := range m.Siblings {
		f := File{Name: s.Name, Size: -1}
		switch {
		case s.LFS != nil:
			f.Size, f.SHA256 = s.LFS.Size, hashOf(s.LFS.SHA256, sha256.Size)
		case s.Size != nil:
			f.Size, f.Git = *s.Size, hashOf(s.Blob, sha1.Size)
		}
		l.Files = append(l.Files, f)
	}
	return l, nil
}

// Open reads a file from an offset.
func (h *Hub) Open(ctx context.Context, w Want, l *Listing, f *File, offset int64) (io.ReadCloser, int64, error) {
	name, _, _ := w.split()
	escaped := (&url.URL{Path: f.Name}).EscapedPath()
	answer, err := h.get(ctx, w.Token, "/"+name+"/resolve/"+l.Version+"/"+escaped, offset)
	if err != nil {
		return nil, 0, err
	}
	if answer.StatusCode != http.StatusPartialContent {
		offset = 0
	}
	if !f.verifiable() {
		f.SHA256, f.Git = hashesOf(answer)
	}
	return answer.Body, offset, nil
}

// hashesOf returns the hash that the hub itself names with a file, "" for none: the SHA-256 of
// a large file, which is elsewhere, or the Git hash of a small one. It may redirect within
// itself before.
func hashesOf(answer *http.Response) (sum, git string) {
	var all []*http.Response
	for one := answer; one != nil; one = one.Request.Response {
		all = append(all, one) //nolint:bodyclose // Closed by the caller, or by the client.
	}
	hub := all[len(all)-1].Request.URL.Host
	for _, one := range slices.Backward(all) { //nolint:bodyclose // As above.
		if one.Request.URL.Host != hub {
			break
		}
		tag := one.Header.Get("X-Linked-Etag")
		if tag == "" && one.StatusCode < http.StatusMultipleChoices {
			tag = one.Header.Get("Etag")
		}
		tag = strings.Trim(strings.TrimPrefix(tag, "W/"), `"`)
		if sum, git = hashOf(tag, sha256.Size), hashOf(tag, sha1.Size); sum != "" || git != "" {
			return sum, git
		}
	}
	return "", ""
}

// hashOf returns a hash of a size in its usual form, "" if the text is none.
func hashOf(text string, size int) string {
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != size {
		return ""
	}
	return hex.EncodeToString(data)
}

// get asks the hub. The token is sent to no other origin, to which the hub may redirect: an
// http.Client would send it to subdomains, to other ports and from https to http.
func (h *Hub) get(ctx context.Context, token, path string, offset int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask hub: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	client := *h.Client
	client.CheckRedirect = keepToken
	answer, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask hub: %w", err)
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		return answer, nil
	case http.StatusNotFound:
		err = compute.Errorf(compute.CodeNotFound, "the hub has no such model")
	case http.StatusUnauthorized, http.StatusForbidden:
		err = compute.Errorf(compute.CodeNotFound,
			"the hub has no such model, or hf_token may not read it (it answered %d)", answer.StatusCode)
	default:
		err = compute.Errorf(compute.CodeUnavailable, "the hub answered %d", answer.StatusCode)
	}
	answer.Body.Close()
	return nil, err
}

// maxRedirects is how many redirects of a hub are followed.
const maxRedirects = 10

// keepToken removes the token from a redirected request to another origin than that of the
// first one.
func keepToken(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	if originOf(req.URL) != originOf(via[0].URL) {
		req.Header.Del("Authorization")
	}
	return nil
}

// originOf returns the scheme, host and port of a URL.
func originOf(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	case u.Scheme == "http":
		port = "80"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
