package berth

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
)

// NewFile is a file to be stored.
type NewFile struct {
	Key    string
	Size   int64
	Type   string                        // Media type; "" if its name says it.
	SHA256 string                        // Hash of the content, in hexadecimal; "" if it is not known.
	Open   func() (io.ReadCloser, error) // Called for each try.
}

// UploadInto stores a file and decodes the answer into out. All tries have one
// Idempotency-Key.
func (c *Client) UploadInto(ctx context.Context, f NewFile, out any) error {
	var raw [16]byte
	if _, err := io.ReadFull(c.cfg.Rand, raw[:]); err != nil {
		return fmt.Errorf("make idempotency key: %w", err)
	}
	tries := c.newTries()
	for {
		retry, err := c.tryUpload(ctx, tries.addr(), hex.EncodeToString(raw[:]), f, out)
		if err == nil || !retry || ctx.Err() != nil || !tries.next(ctx, err) {
			return err
		}
	}
}

// tryUpload sends a file to one address.
func (c *Client) tryUpload(
	ctx context.Context, addr, key string, f NewFile, out any,
) (retry bool, err error) {
	body, err := f.Open()
	if err != nil {
		return false, err
	}
	defer body.Close()
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	for name, value := range map[string]string{"content_type": f.Type, "sha256": f.SHA256} {
		if value == "" {
			continue
		}
		if err := form.WriteField(name, value); err != nil {
			return false, err
		}
	}
	if _, err := form.CreateFormFile("file", "file"); err != nil {
		return false, err
	}
	tail := "\r\n--" + form.Boundary() + "--\r\n"
	sent := &sizedReader{r: body, left: f.Size}
	target := addr + apiRoot + "/storage/upload?key=" + url.QueryEscape(f.Key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target,
		io.NopCloser(io.MultiReader(bytes.NewReader(head.Bytes()), sent, bytes.NewReader([]byte(tail)))))
	if err != nil {
		return false, fmt.Errorf("make request: %w", err)
	}
	req.ContentLength = int64(head.Len()) + f.Size + int64(len(tail))
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Idempotency-Key", key)
	return c.sendBody(req, sent, out)
}

// UploadPartInto sends a part of a file as the body of a PUT at a path below
// /api/v2/external and decodes the answer into out. A repeat replaces the part.
func (c *Client) UploadPartInto(
	ctx context.Context, path string, size int64, open func() (io.ReadCloser, error), out any,
) error {
	tries := c.newTries()
	for {
		retry, err := c.tryPart(ctx, tries.addr()+apiRoot+path, size, open, out)
		if err == nil || !retry || ctx.Err() != nil || !tries.next(ctx, err) {
			return err
		}
	}
}

// tryPart sends a part to one address.
func (c *Client) tryPart(
	ctx context.Context, target string, size int64, open func() (io.ReadCloser, error), out any,
) (retry bool, err error) {
	body, err := open()
	if err != nil {
		return false, err
	}
	defer body.Close()
	sent := &sizedReader{r: body, left: size}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, io.NopCloser(sent))
	if err != nil {
		return false, fmt.Errorf("make request: %w", err)
	}
	req.ContentLength = size
	req.Header.Set("Content-Type", "application/octet-stream")
	return c.sendBody(req, sent, out)
}

// sendBody sends a request with a body that is not held in memory.
func (c *Client) sendBody(req *http.Request, sent *sizedReader, out any) (retry bool, err error) {
	c.identify(req.Header)
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return sent.err == nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return true, err
	}
	if resp.StatusCode != http.StatusOK {
		refusal := errorOf(resp.StatusCode, resp.Header, answer)
		return refusal.temporary(), refusal
	}
	return false, json.Unmarshal(answer, out)
}

// sizedReader reads so many bytes. A file that has become shorter is an error.
type sizedReader struct {
	r    io.Reader
	left int64
	err  error
}

func (s *sizedReader) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if err == io.EOF && s.left > 0 { //nolint:errorlint // Readers return it as it is.
		err = fmt.Errorf("the file has become shorter by %d bytes", s.left)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // As above.
		s.err = err
	}
	return n, err
}
