package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"berth/compute"
)

// Protocols of the cluster port, by ALPN.
const (
	ProtoRaft = "raft/1" // Servers only.
	ProtoRPC  = "rpc/1"
)

// HandshakeTimeout limits connecting, the TLS handshake and the welcome.
const HandshakeTimeout = 5 * time.Second

// maxReason is the maximum length of the reason for a refusal, in bytes.
const maxReason = 1024

// epochPrefix precedes the epoch in the TLS server name; none in epoch 0.
const epochPrefix = "epoch-"

// The first byte that the accepting side sends after the handshake. TLS alone
// would report to a refused node only that its certificate is bad.
const (
	welcome = 0
	refused = 1 // Followed by the reason: two bytes of length, then text.

	otherEpoch = 2 // Followed by the epoch of this side: eight bytes.
)

// Welcome accepts a peer.
func Welcome(conn net.Conn) error {
	_, err := conn.Write([]byte{welcome})
	return err
}

// Refuse reports to a peer why it is refused, and closes conn for writing.
func Refuse(conn *tls.Conn, why error) error {
	reason := why.Error()[:min(len(why.Error()), maxReason)]
	message := binary.BigEndian.AppendUint16([]byte{refused}, uint16(len(reason)))
	_, err := conn.Write(append(message, reason...))
	return errors.Join(err, conn.CloseWrite())
}

// RefuseEpoch reports to a peer of another epoch that this side is in epoch own, and
// closes conn for writing.
func RefuseEpoch(conn *tls.Conn, own uint64) error {
	_, err := conn.Write(binary.BigEndian.AppendUint64([]byte{otherEpoch}, own))
	return errors.Join(err, conn.CloseWrite())
}

// EpochError refuses a server of another epoch; the value is that epoch.
type EpochError uint64

func (e EpochError) Error() string {
	return fmt.Sprintf("the other side is in epoch %d of the cluster: its state was restored or recovered since",
		uint64(e))
}

// EpochName returns the TLS server name with which a dialling side announces its
// epoch.
func EpochName(epoch uint64) string {
	if epoch == 0 {
		return ""
	}
	return epochPrefix + strconv.FormatUint(epoch, 10)
}

// EpochOf returns the epoch that the dialling side announced.
func EpochOf(state tls.ConnectionState) uint64 {
	text, found := strings.CutPrefix(state.ServerName, epochPrefix)
	epoch, err := strconv.ParseUint(text, 10, 64)
	if !found || err != nil {
		return 0
	}
	return epoch
}

// ErrRemoved refuses a node that was removed from the cluster.
func ErrRemoved() *compute.Error {
	return compute.Errorf(compute.CodeForbidden, "This node was removed from the cluster.").Named("node_removed")
}

// DialFunc is the signature of net.Dialer.DialContext.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// DialTLS connects, does the handshake and awaits the welcome, all within
// HandshakeTimeout.
func DialTLS(ctx context.Context, dial DialFunc, address string, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	raw, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(NewCorked(raw), config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("handshake with %s: %w", address, Advise(err))
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(deadline); err != nil {
		raw.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	err = awaitWelcome(conn)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("%s: %w", address, Advise(err))
	}
	return conn, nil
}

// Advise adds advice to the error when the other side refused this node's
// certificate. TLS has no error types for that, and a dialing side does not
// learn the reason.
func Advise(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "remote error: tls: expired certificate"):
		return fmt.Errorf("%w: by the clock there this node's certificate is not valid; compare the clocks of both "+
			"machines, and set the wrong one (timedatectl set-ntp true)", err)
	case strings.Contains(text, "remote error: tls: unknown certificate authority"):
		return fmt.Errorf("%w: this node's certificate is not of the cluster there; correct the address, or copy ca.crt, "+
			"and on a server ca.key, in DATA_DIR/pki from a server of that cluster", err)
	case strings.Contains(text, "remote error: tls: bad certificate"):
		return fmt.Errorf("%w: the machine there does not accept this node's certificate, and its log says why: it looks "+
			"for another cluster or another node at this address, so correct it there; or one of the two clocks is wrong", err)
	}
	return err
}

// awaitWelcome reads the accepting side's result.
func awaitWelcome(r io.Reader) error {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return fmt.Errorf("await welcome: %w", err)
	}
	if head[0] == welcome {
		return nil
	}
	if head[0] == otherEpoch {
		var epoch [8]byte
		if _, err := io.ReadFull(r, epoch[:]); err != nil {
			return fmt.Errorf("await welcome: %w", err)
		}
		return EpochError(binary.BigEndian.Uint64(epoch[:]))
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return fmt.Errorf("await welcome: %w", err)
	}
	reason := make([]byte, min(int(binary.BigEndian.Uint16(head[1:])), maxReason))
	if _, err := io.ReadFull(bufio.NewReader(r), reason); err != nil {
		return fmt.Errorf("await welcome: %w", err)
	}
	if gone := ErrRemoved(); string(reason) == gone.Error() {
		return gone
	}
	return fmt.Errorf("refused: %s", reason)
}
