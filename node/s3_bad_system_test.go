package node_test

import (
	"bytes"
	"crypto/md5" //nolint:gosec // A header carries an MD5 sum.
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"berth/api/wire"
)

// rawS3 makes requests to S3 that are signed as they are, which no client would make.
type rawS3 struct {
	t      *testing.T
	creds  wire.StorageCredentials
	host   string
	prefix string // Prefix of the paths.
}

// request returns a request for a raw path below the bucket. Change is made before it is
// signed, at a time that is off by some.
func (s *rawS3) request(method, path string, body []byte, off time.Duration, change func(*http.Request)) *http.Request {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.host, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	path, query, _ := strings.Cut(path, "?")
	req.URL.Opaque, req.URL.RawQuery = "//"+s.host+s.prefix+"/"+s.creds.BucketName+"/"+path, query
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	if change != nil {
		change(req)
		hash = req.Header.Get("X-Amz-Content-Sha256")
	}
	given := aws.Credentials{AccessKeyID: s.creds.AccessKey, SecretAccessKey: s.creds.SecretKey, SessionToken: s.creds.SessionToken}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(s.t.Context(), given, req, hash, "s3", s.creds.Region, time.Now().Add(off)); err != nil {
		s.t.Fatal(err)
	}
	return req
}

// ask sends a request and returns the status and the answer.
func (s *rawS3) ask(req *http.Request) (int, string) {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// badS3 sends bad input to the S3 port and to that of the API, and finds that nothing of
// it is stored.
func (c *storageCluster) badS3(t *testing.T) {
	creds, err := c.at(c.Follower()).StorageCredentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, endpoint := range map[string]string{"port": creds.Endpoint, "API": c.Follower().URL() + "/s3"} {
		u, err := url.Parse(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		s := &rawS3{t, creds, u.Host, u.Path}
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.refusals()
			s.cutUpload()
		})
	}
	files, _, err := c.at(c.Follower()).Files(t.Context(), "bad/", "", 0)
	if err != nil || len(files) > 0 {
		t.Errorf("of bad requests are stored %+v, %v", files, err)
	}
}

// refusals are requests that S3 refuses, with what it says.
func (s *rawS3) refusals() {
	wrong := sha256.Sum256([]byte("other"))
	wrongMD5 := md5.Sum([]byte("other")) //nolint:gosec // As above.
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, test := range []struct {
		name, method, path string
		off                time.Duration
		change             func(*http.Request)
		status             int
		code               string
	}{
		{"a key of 1,025 bytes", "PUT", "bad/" + strings.Repeat("k", 1021), 0, nil, 400, "KeyTooLong"},
		{"invalid UTF-8", "PUT", "bad/%FF%FE", 0, nil, 400, ""},
		{"NUL", "PUT", "bad/a%00b", 0, nil, 400, ""},
		{"a line break", "PUT", "bad/a%0Ab", 0, nil, 400, ""},
		{"dots", "PUT", "bad/../b", 0, nil, 400, ""},
		{"escaped dots", "PUT", "bad/%2E%2E/b", 0, nil, 0, ""},
		{"a wrong MD5", "PUT", "bad/a", 0, set("Content-MD5", base64.StdEncoding.EncodeToString(wrongMD5[:])), 400, "BadDigest"},
		{"no MD5", "PUT", "bad/a", 0, set("Content-MD5", "x"), 400, "InvalidDigest"},
		{"a wrong checksum", "PUT", "bad/a", 0, set("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(wrong[:])), 400, ""},
		{"other content than signed", "PUT", "bad/a", 0, set("X-Amz-Content-Sha256", hex.EncodeToString(wrong[:])), 400, "XAmzContentSHA256Mismatch"},
		{"part 10,001", "PUT", "bad/a?partNumber=10001&uploadId=x", 0, nil, 400, "InvalidArgument"},
		{"part 0", "PUT", "bad/a?partNumber=0&uploadId=x", 0, nil, 400, "InvalidArgument"},
		{"an upload that does not exist", "PUT", "bad/a?partNumber=1&uploadId=x", 0, nil, 404, "NoSuchUpload"},
		{"a clock an hour late", "PUT", "bad/a", -time.Hour, nil, 403, "RequestTimeTooSkewed"},
		{"a clock an hour early", "PUT", "bad/a", time.Hour, nil, 403, "RequestTimeTooSkewed"},
		{"a copy of another bucket", "PUT", "bad/a", 0, set("X-Amz-Copy-Source", "org-00000000-0000-0000-0000-000000000000/a"), 404, ""},
		{"a copy of what climbs", "PUT", "bad/a", 0, set("X-Amz-Copy-Source", s.creds.BucketName+"/../../etc/passwd"), 0, ""},
		{"metadata of 3 KiB", "PUT", "bad/a", 0, set("X-Amz-Meta-A", strings.Repeat("x", 3<<10)), 400, "MetadataTooLarge"},
	} {
		body := []byte("text")
		if strings.HasPrefix(test.name, "a copy") {
			body = nil
		}
		status, text := s.ask(s.request(test.method, test.path, body, test.off, test.change))
		if status < 400 || status >= 500 || test.status != 0 && status != test.status || !strings.Contains(text, test.code) {
			s.t.Errorf("%s: %d %.300s", test.name, status, text)
		}
	}
	changed := s.request("PUT", "bad/a", []byte("text"), 0, nil)
	changed.URL.Opaque += "b"
	if status, text := s.ask(changed); status != 403 || !strings.Contains(text, "SignatureDoesNotMatch") {
		s.t.Errorf("a changed path: %d %.300s", status, text)
	}
}

// cutUpload ends uploads early: in the header, in the body, and between parts of it.
func (s *rawS3) cutUpload() {
	req := s.request("PUT", "bad/cut", bytes.Repeat([]byte("x"), 1000), 0, nil)
	head := fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n", strings.TrimPrefix(req.URL.Opaque, "//"+s.host), s.host)
	for name := range req.Header {
		head += name + ": " + req.Header.Get(name) + "\r\n"
	}
	for _, sent := range []string{head, head + "\r\n", head + "\r\n" + strings.Repeat("x", 999)} {
		conn, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", s.host)
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := io.WriteString(conn, sent); err != nil {
			s.t.Error(err)
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			if err := tcp.CloseWrite(); err != nil {
				s.t.Error(err)
			}
		}
		answer, _ := io.ReadAll(conn) // Some close the connection, some say why.
		conn.Close()
		if bytes.Contains(answer, []byte(" 200 ")) {
			s.t.Errorf("an upload that ended early is %s", answer)
		}
	}
}
