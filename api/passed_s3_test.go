package api_test

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"slices"
	"strings"
	"testing"

	"berth/api/wire"
)

// s3Operations are requests of clients of S3 about a bucket, an object and an upload in it.
func s3Operations(bucket, upload string) map[string]s3Request {
	at := "/" + bucket
	part := "?partNumber=1&uploadId=" + upload
	return map[string]s3Request{
		"head bucket":      {method: "HEAD", path: at},
		"list":             {method: "GET", path: at},
		"list, version 2":  {method: "GET", path: at + "?list-type=2"},
		"list versions":    {method: "GET", path: at + "?versions="},
		"list uploads":     {method: "GET", path: at + "?uploads="},
		"location":         {method: "GET", path: at + "?location="},
		"acl":              {method: "GET", path: at + "?acl="},
		"policy":           {method: "GET", path: at + "?policy="},
		"tags of bucket":   {method: "GET", path: at + "?tagging="},
		"make bucket":      {method: "PUT", path: at},
		"delete bucket":    {method: "DELETE", path: at},
		"set policy":       {method: "PUT", path: at + "?policy=", body: `{"Statement":[]}`},
		"set acl":          {method: "PUT", path: at + "?acl=", header: map[string]string{"X-Amz-Acl": "public-read"}},
		"delete many":      {method: "POST", path: at + "?delete=", body: "<Delete><Object><Key>kept</Key></Object></Delete>"},
		"head":             {method: "HEAD", path: at + "/kept"},
		"get":              {method: "GET", path: at + "/kept"},
		"get a part":       {method: "GET", path: at + "/kept", header: map[string]string{"Range": "bytes=0-3"}},
		"attributes":       {method: "GET", path: at + "/kept?attributes=", header: map[string]string{"X-Amz-Object-Attributes": "ETag"}},
		"acl of object":    {method: "GET", path: at + "/kept?acl="},
		"tags":             {method: "GET", path: at + "/kept?tagging="},
		"put":              {method: "PUT", path: at + "/kept", body: "overwritten"},
		"put another":      {method: "PUT", path: at + "/new", body: "new"},
		"copy":             {method: "PUT", path: at + "/copy", header: map[string]string{"X-Amz-Copy-Source": bucket + "/kept"}},
		"begin upload":     {method: "POST", path: at + "/big?uploads="},
		"put part":         {method: "PUT", path: at + "/parts" + part, body: "part"},
		"copy part":        {method: "PUT", path: at + "/parts" + part, header: map[string]string{"X-Amz-Copy-Source": bucket + "/kept"}},
		"list parts":       {method: "GET", path: at + "/parts?uploadId=" + upload},
		"complete upload":  {method: "POST", path: at + "/parts?uploadId=" + upload, body: "<CompleteMultipartUpload></CompleteMultipartUpload>"},
		"abort upload":     {method: "DELETE", path: at + "/parts?uploadId=" + upload},
		"delete":           {method: "DELETE", path: at + "/kept"},
		"another method":   {method: "PATCH", path: at + "/kept"},
		"a preflight":      {method: "OPTIONS", path: at + "/kept"},
		"restore":          {method: "POST", path: at + "/kept?restore=", body: "<RestoreRequest/>"},
		"select":           {method: "POST", path: at + "/kept?select=&select-type=2", body: "<x/>"},
		"dots":             {method: "GET", path: at + "/../" + bucket + "/kept"},
		"encoded dots":     {method: "GET", path: at + "/%2e%2e/" + bucket + "/kept"},
		"another spelling": {method: "GET", path: "/" + strings.ToUpper(bucket) + "/kept"},
	}
}

// s3Code returns the code in an error of S3, "" for none.
func s3Code(a answer) string {
	var e struct{ Code string }
	if xml.Unmarshal(a.body, &e) != nil {
		return ""
	}
	return e.Code
}

// s3Holder is who asks for objects: with credentials of S3, or with something of the API.
type s3Holder struct {
	name   string
	creds  wire.StorageCredentials
	bearer string // Instead of a signature.
	query  string
	// foreign credentials are good, and those of another organization.
	foreign bool
}

// s3Holders returns all who may not use cyd's bucket.
func (p *passing) s3Holders() []s3Holder {
	p.Helper()
	own, bob := p.s3Credentials(p.cydKey), p.s3Credentials(p.bobKey)
	changed := func(change func(c *wire.StorageCredentials)) wire.StorageCredentials {
		c := own
		change(&c)
		return c
	}
	var key wire.MintedKey
	p.mustDo("POST", "/orgs/cyd-lab/api-keys", p.cydKey, map[string]any{"name": "revoked"}, &key)
	revoked := p.s3Credentials(key.PlaintextKey)
	p.mustDo("DELETE", "/orgs/cyd-lab/api-keys/"+key.ID.String(), p.cydKey, nil, nil)
	out := p.login("cyd")
	loggedOut := p.s3Credentials(out.AccessToken)
	p.mustDo("POST", "/auth/logout", "", map[string]any{"refresh_token": out.RefreshToken}, nil)
	return []s3Holder{
		{name: "nobody"},
		{name: "the organization's key without a signature", bearer: p.cydKey},
		{name: "a member's token without a signature", bearer: p.session.AccessToken},
		{name: "the root token", bearer: rootToken},
		{name: "the metrics token", bearer: metricsToken},
		{name: "an operator's key", bearer: p.adaKey},
		{name: "a token in the URL", query: "token=" + p.cydKey},
		{name: "another secret", creds: changed(func(c *wire.StorageCredentials) { c.SecretKey += "x" })},
		{name: "another's secret", creds: changed(func(c *wire.StorageCredentials) { c.SecretKey = bob.SecretKey })},
		{name: "another's access key", creds: changed(func(c *wire.StorageCredentials) { c.AccessKey = bob.AccessKey })},
		{name: "another's session token", creds: changed(func(c *wire.StorageCredentials) { c.SessionToken = bob.SessionToken })},
		{name: "the own session token with another's pair", creds: wire.StorageCredentials{
			AccessKey: bob.AccessKey, SecretKey: bob.SecretKey, SessionToken: own.SessionToken,
		}},
		{name: "no session token", creds: changed(func(c *wire.StorageCredentials) { c.SessionToken = "" })},
		{name: "a made-up access key", creds: changed(func(c *wire.StorageCredentials) { c.AccessKey = "AKIAIOSFODNN7EXAMPLE" })},
		{name: "the API key as all of it", creds: wire.StorageCredentials{
			AccessKey: p.cydKey, SecretKey: p.cydKey, SessionToken: p.cydKey,
		}},
		{name: "a revoked key's", creds: revoked},
		{name: "an ended login's", creds: loggedOut},
		{name: "another organization's", creds: bob, foreign: true},
		{name: "an operator's", creds: p.s3Credentials(p.adaKey), foreign: true},
	}
}

// askS3As makes a request of S3 as somebody.
func (p *passing) askS3As(node *world, who s3Holder, r s3Request) answer {
	p.Helper()
	if who.query != "" {
		join := "?"
		if strings.Contains(r.path, "?") {
			join = "&"
		}
		r.path += join + who.query
	}
	if who.creds.AccessKey == "" {
		header := []string{}
		for name, value := range r.header {
			header = append(header, name, value)
		}
		return node.fetch(r.method, "/s3"+r.path, who.bearer, []byte(r.body), header)
	}
	return p.askS3(node, who.creds, r)
}

// TestS3Requests makes every kind of request of S3 about an organization's bucket with everything that
// gives no right to it, on a server and a worker: it changes nothing, shows nothing and finds nothing
// out. With the organization's credentials the same requests read and write.
func TestS3Requests(t *testing.T) {
	p := newPassing(t)
	own := p.s3Credentials(p.cydKey)
	good := func(r s3Request) answer {
		t.Helper()
		a := p.askS3(p.world, own, r)
		if a.status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", r.method, r.path, a.status, a.body)
		}
		return a
	}
	at := "/" + own.BucketName
	good(s3Request{method: "PUT", path: at + "/kept", body: canaryOfCyd})
	var begun struct {
		UploadID string `xml:"UploadId"`
	}
	p.ok(xml.Unmarshal(good(s3Request{method: "POST", path: at + "/parts?uploads="}).body, &begun))
	good(s3Request{method: "PUT", path: at + "/parts?partNumber=1&uploadId=" + begun.UploadID, body: canaryOfCyd})
	holders := p.s3Holders()
	operations := s3Operations(own.BucketName, begun.UploadID)
	none := s3Operations("org-"+uuidText(9), begun.UploadID)
	cells, writes := 0, p.proposals()
	for place, node := range map[string]*world{"server": p.world, "worker": p.worker} {
		for name, r := range operations {
			for _, who := range holders {
				cells++
				got := p.askS3As(node, who, r)
				where := place + ": " + name + " as " + who.name
				if got.status < 400 || got.status == http.StatusInternalServerError || got.status == http.StatusBadGateway ||
					bytes.Contains(got.body, []byte(canaryOfCyd)) {
					p.leaks++
					t.Errorf("%s: %d %s", where, got.status, got.body)
				}
				if absent := p.askS3As(node, who, none[name]); who.foreign && (absent.status != got.status || s3Code(absent) != s3Code(got)) {
					p.leaks++
					t.Errorf("%s: %d %s, and for a bucket that does not exist %d %s", where, got.status, got.body, absent.status, absent.body)
				}
			}
		}
		for _, who := range holders {
			cells++
			got := p.askS3As(node, who, s3Request{method: "GET", path: "/"})
			if strings.Contains(string(got.body), own.BucketName) || (got.status == http.StatusOK) != who.foreign {
				p.leaks++
				t.Errorf("%s: buckets as %s: %d %s", place, who.name, got.status, got.body)
			}
		}
	}
	if n := p.proposals() - writes; n != 0 {
		p.leaks += n
		t.Errorf("requests that are refused write %d times", n)
	}
	p.copiesOfOthers(t, own)
	if a := good(s3Request{method: "GET", path: at + "/kept"}); string(a.body) != canaryOfCyd {
		t.Errorf("the object is %q after all that", a.body)
	}
	t.Logf("measured: %d requests of S3 with what gives no right to a bucket, on a server and a worker: %d leaks", cells, p.leaks)
	p.ownOperations(t, own, operations)
}

// copiesOfOthers copies from cyd's bucket into one's own.
func (p *passing) copiesOfOthers(t *testing.T, own wire.StorageCredentials) {
	t.Helper()
	bob := p.s3Credentials(p.bobKey)
	for _, from := range []string{own.BucketName + "/kept", "/" + own.BucketName + "/kept", own.BucketName + "%2Fkept"} {
		got := p.askS3(p.world, bob, s3Request{
			method: "PUT", path: "/" + bob.BucketName + "/stolen", header: map[string]string{"X-Amz-Copy-Source": from},
		})
		if read := p.askS3(p.world, bob, s3Request{method: "GET", path: "/" + bob.BucketName + "/stolen"}); got.status < 400 ||
			read.status != http.StatusNotFound {
			p.leaks++
			t.Errorf("a copy of %s: %d %s, then %d %s", from, got.status, got.body, read.status, read.body)
		}
	}
}

// ownOperations makes the requests with the organization's credentials: those that there are succeed.
func (p *passing) ownOperations(t *testing.T, own wire.StorageCredentials, operations map[string]s3Request) {
	t.Helper()
	for _, name := range []string{
		"head bucket", "list", "list, version 2", "list uploads", "location", "head", "get", "put another", "copy",
		"begin upload", "put part", "list parts", "attributes",
	} {
		if a := p.askS3(p.world, own, operations[name]); !slices.Contains([]int{200, 204}, a.status) {
			t.Errorf("%s with the organization's credentials: %d %s", name, a.status, a.body)
		}
	}
	if a := p.askS3(p.worker, own, operations["get"]); string(a.body) != canaryOfCyd {
		t.Errorf("through a worker: %d %s", a.status, a.body)
	}
}

// TestUnknownTrailers announces checksums that S3 does not have behind a body: that is the client's
// mistake, whether the body is read as a whole or as it comes.
func TestUnknownTrailers(t *testing.T) {
	p := newPassing(t)
	own := p.s3Credentials(p.cydKey)
	at := "/" + own.BucketName
	for _, r := range []s3Request{
		{method: "PUT", path: at + "?acl=", header: map[string]string{"X-Amz-Acl": "private"}},
		{method: "POST", path: at + "?delete=", body: "<Delete><Object><Key>a</Key></Object></Delete>"},
		{method: "PUT", path: at + "/a", body: "a"},
	} {
		for _, trailer := range []string{"x", "x-amz-checksum-x", "x-amz-checksum-sha256,x"} {
			header := map[string]string{"X-Amz-Trailer": trailer}
			for name, value := range r.header {
				header[name] = value
			}
			a := p.askS3(p.world, own, s3Request{r.method, r.path, r.body, header})
			if a.status != http.StatusBadRequest || s3Code(a) != "InvalidRequest" {
				t.Errorf("%s %s with the trailer %q: %d %s", r.method, r.path, trailer, a.status, a.body)
			}
		}
	}
}

// TestVersionsOfControlCharacters asks for versions whose names no header can have.
func TestVersionsOfControlCharacters(t *testing.T) {
	p := newPassing(t)
	own := p.s3Credentials(p.cydKey)
	at := "/" + own.BucketName + "/a"
	p.askS3(p.world, own, s3Request{method: "PUT", path: at, body: "a"})
	for _, query := range []string{"?tagging=&versionId=%00", "?versionId=%0D%0Aa%3A%20b", "?acl=&versionId=%7F"} {
		if a := p.askS3(p.world, own, s3Request{method: "GET", path: at + query}); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %v %s", query, a.status, a.header, a.body)
		}
	}
}
