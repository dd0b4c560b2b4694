package docker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/compute"
)

// TestAWSKey exchanges an AWS key at an endpoint that answers as Amazon ECR does.
func TestAWSKey(t *testing.T) {
	token := base64.StdEncoding.EncodeToString([]byte("AWS:pass:word"))
	for name, test := range map[string]struct {
		status  int
		body    string
		refusal bool
		say     string // In the error; "" for none.
	}{
		"token":    {http.StatusOK, `{"authorizationData":[{"authorizationToken":"` + token + `"}]}`, false, ""},
		"no token": {http.StatusOK, `{"authorizationData":[]}`, true, "no token"},
		"no text":  {http.StatusOK, `{"authorizationData":[{"authorizationToken":"?"}]}`, true, "no token"},
		"bad key":  {http.StatusBadRequest, `{"__type":"UnrecognizedClientException","message":"The key is unknown."}`, true, "The key is unknown."},
		"denied":   {http.StatusBadRequest, `{"__type":"AccessDeniedException","message":"Not this key."}`, true, "AccessDeniedException"},
		"down":     {http.StatusInternalServerError, `{"__type":"ServerException","message":"Out of order."}`, false, "Out of order."},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				auth := r.Header.Get("Authorization")
				if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetAuthorizationToken") ||
					!strings.Contains(auth, "Credential=KEY/") || !strings.Contains(auth, "/eu-north-1/ecr/aws4_request") {
					t.Errorf("asked for %q with %q", r.Header.Get("X-Amz-Target"), auth)
				}
				w.Header().Set("Content-Type", "application/x-amz-json-1.1")
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.body)
			}))
			defer server.Close()
			e := &Engine{cfg: Config{ECR: server.URL}}
			got, err := e.resolve(t.Context(), &compute.RegistryCredentials{
				AWSKeyID: "KEY", AWSSecret: "secret", AWSRegion: "eu-north-1",
			})
			switch {
			case test.say == "" && (err != nil || got.Username != "AWS" || got.Password != "pass:word"):
				t.Errorf("got %+v, %v", got, err)
			case test.say != "" && (err == nil || !strings.Contains(err.Error(), test.say) || IsRefusal(err) != test.refusal):
				t.Errorf("got error %v, want %q, a refusal %t", err, test.say, test.refusal)
			}
		})
	}
}

// TestAWSKeyOfADeadEndpoint is not the user's to fix.
func TestAWSKeyOfADeadEndpoint(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	e := &Engine{cfg: Config{ECR: server.URL}}
	_, err := e.resolve(t.Context(), &compute.RegistryCredentials{AWSKeyID: "KEY", AWSSecret: "secret", AWSRegion: "eu-north-1"})
	if err == nil || IsRefusal(err) {
		t.Errorf("got %v, want an error that is no refusal", err)
	}
}

// TestAWSRegions asks at the endpoint of the region, in the part of Amazon's cloud that it
// belongs to.
func TestAWSRegions(t *testing.T) {
	for region, host := range map[string]string{
		"us-east-1":     "api.ecr.us-east-1.amazonaws.com",
		"eu-north-1":    "api.ecr.eu-north-1.amazonaws.com",
		"us-gov-west-1": "api.ecr.us-gov-west-1.amazonaws.com",
		"cn-north-1":    "api.ecr.cn-north-1.amazonaws.com.cn",
	} {
		none := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no name server")
		}}
		e := &Engine{guard: &guard{resolver: none}}
		_, err := e.resolve(t.Context(), &compute.RegistryCredentials{AWSKeyID: "KEY", AWSSecret: "secret", AWSRegion: region})
		if err == nil || IsRefusal(err) || !strings.Contains(err.Error(), host) {
			t.Errorf("%s: %v, want one about %s", region, err, host)
		}
	}
}
