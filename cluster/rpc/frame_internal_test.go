package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"testing"

	"berth/compute"
)

// FuzzFrame reads a message of a peer without a certificate: it is an error, or the
// message is encoded in the same way again, and no byte behind it is read.
func FuzzFrame(f *testing.F) {
	codec := NewCodec()
	var good bytes.Buffer
	if err := codec.write(&good, request{Method: "cluster.join", TimeoutMS: 7, Payload: []byte("x")}, MaxJoin); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add(good.Bytes()[:7])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0xff, 0xff, 0xa3, 1, 0x7b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 9, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var req, again request
		rest := bytes.NewReader(data)
		if err := codec.read(rest, &req, MaxJoin); err != nil {
			return
		}
		if got, want := len(data)-rest.Len(), 4+int(binary.BigEndian.Uint32(data)); got != want {
			t.Errorf("read %d bytes of a message of %d", got, want)
		}
		if err := codec.Unmarshal(codec.Marshal(req), &again); err != nil || again.Method != req.Method || !bytes.Equal(again.Payload, req.Payload) {
			t.Errorf("%+v came back as %+v, %v", req, again, err)
		}
	})
}

// TestRequestsHaveOneEncoding sends requests of all sizes. The bytes are those of the
// codec, and none is over the limit.
func TestRequestsHaveOneEncoding(t *testing.T) {
	codec := NewCodec()
	for _, size := range []int{0, 1, oneWrite, oneWrite + 1, MaxRequest - 100, MaxRequest} {
		for _, timeout := range []int64{0, 30_000} {
			req := request{Method: "api.relay", TimeoutMS: timeout, Payload: bytes.Repeat([]byte{7}, size)}
			var got, want bytes.Buffer
			gotErr, wantErr := codec.writeRequest(&got, req), codec.write(&want, req, MaxRequest)
			if compute.CodeOf(gotErr) != compute.CodeOf(wantErr) || !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%d bytes: sent %d, %v; want %d, %v", size, got.Len(), gotErr, want.Len(), wantErr)
			}
		}
	}
}

// FuzzSession sends bytes of a peer without a certificate to the multiplexer and
// the calls behind it. The connection ends, and nothing else happens.
func FuzzSession(f *testing.F) {
	codec := NewCodec()
	header := func(kind, flags byte, length uint32) []byte {
		return binary.BigEndian.AppendUint32([]byte{0, kind, 0, flags, 0, 0, 0, 1}, length)
	}
	var call bytes.Buffer
	if err := codec.write(&call, request{Method: "cluster.join", Payload: []byte("x")}, MaxJoin); err != nil {
		f.Fatal(err)
	}
	opened := header(1, 1, 0) // A window update that opens stream 1.
	whole := append(append(opened, header(0, 0, uint32(call.Len()))...), call.Bytes()...)
	f.Add(whole)
	f.Add(opened)
	f.Add(header(0, 0, 1<<31))
	f.Add(header(2, 1, 7))
	f.Add(header(3, 0, 0))
	f.Add(append(append(append([]byte(nil), whole...), opened...), whole...))
	f.Fuzz(func(_ *testing.T, data []byte) {
		s := &Server{
			Codec: codec, Logger: slog.New(slog.DiscardHandler), Allow: func(Peer, string) error { return nil },
		}
		s.Handle("cluster.join", func(_ context.Context, _ Peer, payload []byte) ([]byte, error) { return payload, nil })
		near, far := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.ServeConn(context.Background(), far, Peer{}) //nolint:errcheck // It is broken on purpose.
		}()
		answers := make(chan struct{})
		go func() {
			defer close(answers)
			var buf [4096]byte
			for {
				if _, err := near.Read(buf[:]); err != nil {
					return
				}
			}
		}()
		near.Write(data) //nolint:errcheck // The server may hang up.
		near.Close()
		<-ended
		<-answers
	})
}
