package berth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	berth "berth/sdk/go"
)

func output(seq int, text string) string {
	return fmt.Sprintf("id: %d\ndata: {\"output\":{\"content\":%q}}\n\n", seq, text)
}

func finished(seq int, code string) string {
	return fmt.Sprintf("id: %d\ndata: {\"jobFinished\":{\"job\":{\"result\":{\"returnCode\":%q,\"error\":null}}}}\n\n", seq, code)
}

// collect returns what the stream yields as one text each, and its error.
func collect(ctx context.Context, c *berth.Client, id string, after uint64) ([]string, error) {
	var got []string
	for event, err := range c.Stream(ctx, id, after) {
		switch {
		case err != nil:
			return got, err
		case event.Finished != nil:
			got = append(got, fmt.Sprintf("%d end %s", event.Seq, event.Finished.ReturnCode))
		case event.Stderr:
			got = append(got, fmt.Sprintf("%d err %s", event.Seq, event.Content))
		default:
			got = append(got, fmt.Sprintf("%d out %s", event.Seq, event.Content))
		}
	}
	return got, nil
}

// A stream that breaks off goes on at another node behind the last event that
// was yielded, and what that node repeats is yielded once.
func TestStreamResumes(t *testing.T) {
	broken, brokenSeen := mustServe(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, output(5, "a")+output(6, "b")+"id: 7\ndata: {\"out") //nolint:errcheck // The client may be gone.
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	healthy, healthySeen := mustServe(t, answer(200, output(6, "b")+output(7, "c")+finished(8, "3")))
	c := mustNew(t, berth.Config{Addrs: []string{broken, mustDead(t), healthy}, Token: "lk_1"})
	got, err := collect(t.Context(), c, anID, 4)
	want := []string{"5 out a", "6 out b", "7 out c", "8 end 3"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	first, second := brokenSeen.all(), healthySeen.all()
	if len(first) != 1 || first[0].lastEvent != "4" || first[0].bearer != "Bearer lk_1" ||
		first[0].path != "/api/v1/stream/"+anID {
		t.Errorf("the first node was asked %+v", first)
	}
	if len(second) != 1 || second[0].lastEvent != "6" {
		t.Errorf("the second node was asked %+v, want to go on behind 6", second)
	}
}

func TestStreamReadsEvents(t *testing.T) {
	tests := []struct {
		name, body string
		want       []string
	}{
		{"comments and unknown events", ": hello\n\n:\n\nevent: x\nid: 1\ndata: {\"new\":{}}\n\n" + finished(2, "0"), []string{"2 end 0"}},
		{"without space", "id:1\ndata:{\"output\":{\"content\":\"x\"}}\n\n" + finished(2, "0"), []string{"1 out x", "2 end 0"}},
		{"data over lines", "id: 1\ndata: {\"output\":\ndata: {\"content\":\"x\"}}\n\n" + finished(2, "0"), []string{"1 out x", "2 end 0"}},
		{"carriage returns", strings.ReplaceAll(output(1, "x")+finished(2, "0"), "\n", "\r\n"), []string{"1 out x", "2 end 0"}},
		{"standard error", "id: 1\ndata: {\"output\":{\"content\":\"x\"},\"stream\":\"stderr\"}\n\n" + finished(2, ""), []string{"1 err x", "2 end "}},
		{"an end without a number", output(1, "x") + strings.TrimPrefix(finished(2, "0"), "id: 2\n"), []string{"1 out x", "0 end 0"}},
		{"nothing behind the end", finished(1, "0") + output(2, "x"), []string{"1 end 0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url, _ := mustServe(t, answer(200, tt.body))
			c := mustNew(t, berth.Config{Addrs: []string{url}, RetryFor: -1})
			got, err := collect(t.Context(), c, anID, 0)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestStreamRefused(t *testing.T) {
	url, asked := mustServe(t, answer(404, `{"detail":"no such execution","code":"not_found"}`))
	c := mustNew(t, berth.Config{Addrs: []string{url}})
	if _, err := collect(t.Context(), c, anID, 0); berth.CodeOf(err) != "not_found" {
		t.Errorf("got %v, want not_found", err)
	}
	if n := len(asked.all()); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
}

func TestStreamMayBeLeft(t *testing.T) {
	url, _ := mustServe(t, answer(200, output(1, "a")+output(2, "b")+finished(3, "0")))
	c := mustNew(t, berth.Config{Addrs: []string{url}})
	n := 0
	for _, err := range c.Stream(t.Context(), anID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		break
	}
	if n != 1 {
		t.Errorf("yielded %d events, want 1", n)
	}
}

// blocked is a body that carries nothing until its request ends.
type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (b blocked) Close() error { return nil }

// A node that says nothing any more, not even that it lives, is left.
func TestStreamLeavesSilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := fakeWire(func(r *http.Request) (*http.Response, error) {
			var body io.ReadCloser = blocked{r.Context()}
			if r.URL.Host == "b" {
				body = io.NopCloser(strings.NewReader(output(1, "a") + finished(2, "0")))
			}
			return &http.Response{StatusCode: 200, Body: body}, nil
		})
		c := mustNew(t, berth.Config{
			Addrs: []string{"http://a", "http://b"}, HTTP: &http.Client{Transport: transport},
		})
		began := time.Now()
		got, err := collect(t.Context(), c, anID, 0)
		if want := []string{"1 out a", "2 end 0"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if took := time.Since(began); took < 30*time.Second || took > time.Minute {
			t.Errorf("left after %s, want after some missed comments", took)
		}
	})
}

// TestQuietStreamsAreNoFailures holds that nodes which kept a stream alive, and then
// were restarted, have served, though nothing was printed.
func TestQuietStreamsAreNoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		transport := fakeWire(func(*http.Request) (*http.Response, error) {
			if tries++; tries == 8 {
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(finished(1, "0")))}, nil
			}
			r, w := io.Pipe()
			go func() {
				for range 4 {
					<-time.After(15 * time.Second)
					fmt.Fprint(w, ": alive\n\n")
				}
				w.CloseWithError(io.ErrUnexpectedEOF)
			}()
			return &http.Response{StatusCode: 200, Body: r}, nil
		})
		c := mustNew(t, berth.Config{Addrs: []string{"http://a", "http://b"}, HTTP: &http.Client{Transport: transport}})
		if got, err := collect(t.Context(), c, anID, 0); err != nil || !slices.Equal(got, []string{"1 end 0"}) {
			t.Errorf("after %d connections %q, %v", tries, got, err)
		}
	})
}

func TestStreamEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := fakeWire(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: blocked{r.Context()}}, nil
		})
		c := mustNew(t, berth.Config{Addrs: []string{"http://a"}, HTTP: &http.Client{Transport: transport}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := collect(ctx, c, anID, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's end", err)
		}
	})
}
